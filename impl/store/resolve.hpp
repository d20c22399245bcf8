// Resolves host names to addresses within a deadline.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

#include "base/clock.hpp"

namespace dsc {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Returns all addresses of a host, at least one. "localhost" is always a loopback address. Other names may
// require a name server. Throws CONFIG if the name cannot be resolved, and TIMEOUT if this takes longer than
// the deadline. `what` describes the host in errors.
Addresses resolve_host(const std::string& host, const std::string& what, Deadline deadline);

}  // namespace dsc
