// Where an address leads, seen from this machine.
#pragma once

#include <string>

#include "base/clock.hpp"

namespace dsc {

enum class AddressPlace { kLoopback, kThisHost, kElsewhere };

// Loopback: localhost and what resolves to nothing but loopback addresses. This host: its name and the
// addresses of its interfaces. Another name is resolved, which may ask a name server. Throws CONFIG if it
// cannot be resolved, TIMEOUT if that takes longer than the deadline.
AddressPlace locate_address(const std::string& address, Deadline deadline);

// An address of this host under which others can reach it: that of `bind` (an interface, a name or a number),
// that of this machine's name, that of an interface, in this order; 127.0.0.1 if there is no other.
std::string own_address(const std::string& bind, Deadline deadline);

}  // namespace dsc
