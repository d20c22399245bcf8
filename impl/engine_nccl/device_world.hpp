// The state that all communicators of a world that is bound to a device share.
#pragma once

#include <memory>

#include "base/guard.hpp"
#include "device/context.hpp"
#include "engine_nccl/communicator.hpp"

namespace dsc {

// One word of device memory. Its destructor does not wait for the device if the device has memory pools.
class DeviceWord {
 public:
  explicit DeviceWord(std::shared_ptr<const Device> device) : device_(device), stream_(std::move(device), 0) {
    const DeviceScope scope(*device_);
    const CudaResult made = device_->cuda().mem_alloc_async(&address_, sizeof(uint64_t), stream_.get());
    is_of_pool_ = made != CudaResult::not_supported;
    device_->check(is_of_pool_ ? made : device_->cuda().mem_alloc(&address_, sizeof(uint64_t)), "cuMemAlloc");
    device_->check(device_->cuda().stream_synchronize(stream_.get()), "cuStreamSynchronize");
  }
  ~DeviceWord() {
    call_out([&] {
      const DeviceScope scope(*device_);
      if (is_of_pool_)
        device_->cuda().mem_free_async(address_, stream_.get());
      else
        device_->cuda().mem_free(address_);
    });
  }
  DeviceWord(const DeviceWord&) = delete;
  DeviceWord& operator=(const DeviceWord&) = delete;

  void* data() const noexcept { return reinterpret_cast<void*>(address_); }

 private:
  const std::shared_ptr<const Device> device_;
  const Stream stream_;
  CudaAddress address_ = 0;
  bool is_of_pool_ = true;
};

struct DeviceWorld {
  NcclContext nccl;
  DeviceContext gpu;
  std::shared_ptr<DeviceWord> barrier_word;  // barriers sum this word
};

}  // namespace dsc
