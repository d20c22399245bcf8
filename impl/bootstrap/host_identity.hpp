// What makes two ranks "on one host": the same boot of the same kernel, and the same network namespace, in
// which abstract sockets live.
#pragma once

#include <string>

#include "base/environment.hpp"

namespace dsc {

inline constexpr size_t kHostIdentityBytes = 63;  // longest text

// "boot id:inode of the network namespace", or DSC_HOST_ID if set. CONFIG if that is longer than
// kHostIdentityBytes.
std::string host_identity(const Environment& environment);

// What people call this host: DSC_HOST_ID, or its name.
std::string host_place(const Environment& environment);

}  // namespace dsc
