// Types for handles of any vendor, so that the code above this folder does not depend on one. Only the
// vendor's library knows what they point to.
#pragma once

namespace dsc {

struct DeviceStream;
struct DeviceEvent;
using DeviceAddress = unsigned long long;

inline DeviceAddress address_of(const void* memory) noexcept {
  return reinterpret_cast<DeviceAddress>(memory);
}

}  // namespace dsc
