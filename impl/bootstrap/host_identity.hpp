// Determines whether two ranks are on the same host. They must run on the same boot of the same kernel, and
// in the same network namespace, because an abstract socket exists only in one network namespace.
#pragma once

#include <string>

#include "base/environment.hpp"

namespace dsc {

inline constexpr size_t kHostIdentityBytes = 63;  // longest identity

// Returns "BOOT_ID:INODE", where INODE is that of the network namespace, or the value of DSC_HOST_ID if it is
// set. Throws CONFIG if DSC_HOST_ID is longer than kHostIdentityBytes.
std::string host_identity(const Environment& environment);

// Returns the name of this host for messages: DSC_HOST_ID if it is set, otherwise the system's host name.
std::string host_name(const Environment& environment);

}  // namespace dsc
