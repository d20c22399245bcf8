// What all communicators of a world that is bound to a device share.
#pragma once

#include <memory>

#include "device/kernel_store.hpp"
#include "device/stream.hpp"
#include "nccl/communicator.hpp"

namespace dsc {

struct DeviceWorld {
  NcclContext nccl;
  std::shared_ptr<EventPool> events;
  std::shared_ptr<KernelStore> kernels;
};

}  // namespace dsc
