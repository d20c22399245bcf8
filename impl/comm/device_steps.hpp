// Steps on a device before and after an operation, in the order of its stream. Kernels before it fill the
// memory that is sent; kernels after it read the memory that was received.
#pragma once

#include <memory>

#include "control/call.hpp"
#include "device/device.hpp"

namespace dsc {

// The caller of an engine creates this object. The engine calls begin() exactly once, when it puts the
// operation on a stream. Before that, the buffers of the call are only used to determine its device.
class DeviceSteps {
 public:
  virtual ~DeviceSteps() = default;

  // The steps on one stream. The destructor frees their memory in the order of the stream.
  class OnStream {
   public:
    virtual ~OnStream() = default;
    // Puts the steps after the operation on the stream.
    virtual void finish() = 0;
  };
  // Puts the steps before the operation on the stream, and sets the buffers of the call. In a group of one
  // rank, both buffers are the same memory. The device's context is current.
  virtual std::unique_ptr<OnStream> begin(Call& call, DeviceStream* stream) const = 0;
};

}  // namespace dsc
