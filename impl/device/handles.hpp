// Names for the folders above, which know no vendor. Only a vendor's library knows what they point to.
#pragma once

namespace dsc {

struct DeviceStream;
struct DeviceEvent;
using DeviceAddress = unsigned long long;

}  // namespace dsc
