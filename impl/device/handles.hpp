// Names for the folders above, which do not depend on a vendor. Only a vendor's library knows what they point
// to.
#pragma once

namespace dsc {

struct DeviceStream;
struct DeviceEvent;
using DeviceAddress = unsigned long long;

inline DeviceAddress address_of(const void* memory) noexcept {
  return reinterpret_cast<DeviceAddress>(memory);
}

}  // namespace dsc
