// Resolution of host names to addresses within a deadline.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

#include "base/clock.hpp"

namespace dsc {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Returns all addresses of a host, at least one; "localhost" is always 127.0.0.1. Other names may require a
// name server. Throws CONFIG if the name cannot be resolved, TIMEOUT if it takes longer than the deadline;
// errors call the host `what`.
Addresses resolve_host(const std::string& host, const std::string& what, Deadline deadline);

}  // namespace dsc
