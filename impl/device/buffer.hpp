// Device memory whose lifetime follows the order of a stream, and host memory that a device reads and writes
// without making the host wait.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device.hpp"

namespace dsc {

// If the device has memory pools, the buffer is allocated and freed in the order of a stream, without waiting
// for the device. The device and the stream must outlive the buffer.
class DeviceBuffer {
 public:
  DeviceBuffer(const Device& device, size_t bytes, DeviceStream* stream);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  DeviceAddress address() const noexcept { return address_; }
  void* data() const noexcept { return reinterpret_cast<void*>(address_); }

 private:
  const Device& device_;
  DeviceStream* const stream_;
  DeviceAddress address_ = 0;
  bool is_of_pool_ = true;
};

// Page-locked host memory. A copy between a device and ordinary host memory may wait for its stream inside
// the driver, without a deadline. A copy between a device and this memory does not wait.
class PinnedBuffer {
 public:
  PinnedBuffer(std::shared_ptr<const Device> device, size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  std::byte* data() const noexcept { return static_cast<std::byte*>(memory_); }
  DeviceAddress address() const noexcept { return address_of(memory_); }
  // Never frees the memory, because the device may still use it.
  void keep() noexcept { memory_ = nullptr; }

 private:
  const std::shared_ptr<const Device> device_;
  void* memory_ = nullptr;
};

}  // namespace dsc
