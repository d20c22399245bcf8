// Classifies addresses as seen from this host.
#pragma once

#include <string>

#include "base/clock.hpp"

namespace dsc {

enum class AddressLocation { kLoopback, kThisHost, kElsewhere };

// Loopback is "localhost" and every name that resolves to loopback addresses only; this host means its name
// and the addresses of its interfaces. Another name is resolved, possibly by a name server. Throws CONFIG if
// it cannot be resolved, TIMEOUT if that takes longer than the deadline.
AddressLocation locate_address(const std::string& address, Deadline deadline);

// Returns an address under which other hosts can reach this one: that of `bind` (an interface, a name or a
// number), of this host's name, or of an interface, in this order; 127.0.0.1 if there is none.
std::string own_address(const std::string& bind, Deadline deadline);

}  // namespace dsc
