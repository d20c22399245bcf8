#include "device/buffer.hpp"

#include <utility>

#include "base/guard.hpp"

namespace dsc {

DeviceBuffer::DeviceBuffer(const Device& device, size_t bytes, DeviceStream* stream)
    : device_(device), stream_(stream) {
  const DeviceScope scope(device);
  const CudaResult made = device.cuda().mem_alloc_async(&address_, bytes, stream);
  is_of_pool_ = made != CudaResult::not_supported;
  device.check(is_of_pool_ ? made : device.cuda().mem_alloc(&address_, bytes),
               is_of_pool_ ? "cuMemAllocAsync" : "cuMemAlloc");
}

DeviceBuffer::~DeviceBuffer() {
  call_out([&] {
    const DeviceScope scope(device_);
    if (is_of_pool_)
      device_.cuda().mem_free_async(address_, stream_);
    else
      device_.cuda().mem_free(address_);
  });
}

PinnedBuffer::PinnedBuffer(std::shared_ptr<const Device> device, size_t bytes) : device_(std::move(device)) {
  const DeviceScope scope(*device_);
  device_->check(device_->cuda().mem_host_alloc(&memory_, bytes, 0), "cuMemHostAlloc");
}

PinnedBuffer::~PinnedBuffer() {
  if (!memory_) return;
  call_out([&] {
    const DeviceScope scope(*device_);
    device_->cuda().mem_free_host(memory_);
  });
}

}  // namespace dsc
