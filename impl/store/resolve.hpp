// Names of hosts to addresses, within a deadline.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

#include "base/clock.hpp"

namespace dsc {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// All addresses of a host, at least one; localhost is 127.0.0.1. Another name may ask a name server. Throws
// CONFIG if it cannot be resolved, TIMEOUT if that takes longer than the deadline; errors call the host
// `what`.
Addresses resolve_host(const std::string& host, const std::string& what, Deadline deadline);

}  // namespace dsc
