// Determines whether two ranks are on one host: they share the boot of a kernel and the network namespace, in
// which abstract sockets exist.
#pragma once

#include <string>

#include "base/environment.hpp"

namespace dsc {

inline constexpr size_t kHostIdentityBytes = 63;  // longest text

// Returns "boot id:inode of the network namespace", or DSC_HOST_ID if it is set. Throws CONFIG if the latter
// is longer than kHostIdentityBytes.
std::string host_identity(const Environment& environment);

// Returns the name of this host for messages: DSC_HOST_ID, or its host name.
std::string host_name(const Environment& environment);

}  // namespace dsc
