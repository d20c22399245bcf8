// The state that all communicators of a world share if the world is bound to a device.
#pragma once

#include <memory>

#include "device/buffer.hpp"
#include "device/context.hpp"
#include "engine_nccl/communicator.hpp"

namespace dsc {

// One word of device memory. A barrier is an all-reduce of this word.
class BarrierWord {
 public:
  explicit BarrierWord(const std::shared_ptr<const Device>& device)
      : device_(device), stream_(device, 0), word_(*device, sizeof(uint64_t), stream_.get()) {
    const DeviceScope scope(*device);
    device->check(device->cuda().stream_synchronize(stream_.get()), "cuStreamSynchronize");
  }

  void* data() const noexcept { return word_.data(); }

 private:
  const std::shared_ptr<const Device> device_;
  const Stream stream_;
  const DeviceBuffer word_;
};

struct DeviceWorld {
  NcclContext nccl;
  DeviceContext gpu;
  std::shared_ptr<BarrierWord> barrier_word;
};

}  // namespace dsc
