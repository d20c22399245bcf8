// Resources shared by all code that works on one device: the device, its pool of events and its kernels.
#pragma once

#include <memory>

#include "device/device.hpp"
#include "device/kernel_store.hpp"
#include "device/stream.hpp"

namespace dsc {

struct DeviceContext {
  std::shared_ptr<const Device> device;
  std::shared_ptr<EventPool> events;
  std::shared_ptr<KernelStore> kernels;
};

}  // namespace dsc
