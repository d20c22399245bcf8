// Decides whether an address is loopback, on this host, or on another host.
#pragma once

#include <string>

#include "base/clock.hpp"

namespace dsc {

enum class AddressLocation { kLoopback, kThisHost, kElsewhere };

// Loopback means "localhost", and any other name that resolves to a loopback address but not to an address of
// an interface. This host means its own name and the addresses of its interfaces. Any other name is resolved,
// possibly by a name server. Throws CONFIG if it cannot be resolved, and TIMEOUT if this takes longer than
// the deadline.
AddressLocation locate_address(const std::string& address, Deadline deadline);

// Returns an address at which other hosts can reach this host. It is the address of `bind` (an interface, a
// name or a numeric address) if that is not empty; otherwise that of this host's name; otherwise that of an
// interface; otherwise 127.0.0.1.
std::string own_address(const std::string& bind, Deadline deadline);

}  // namespace dsc
