// Memory of a device for as long as the work that is put on one stream meanwhile.
#pragma once

#include "device/device.hpp"

namespace dsc {

// Allocated and freed in the order of a stream, without waiting for the device, if the device has memory
// pools. The device and the stream must outlive the buffer.
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

}  // namespace dsc
