// The steps of a device before and after the operation of a call, in the order of its stream: kernels that
// fill the memory that is sent, and kernels that read the memory that was received.
#pragma once

#include <memory>

#include "control/call.hpp"
#include "device/device.hpp"

namespace dsc {

// Made by the caller of an engine. The engine calls begin() once, when it puts the operation on a stream.
// Until then the buffers of the call only tell on which device it runs.
class DeviceSteps {
 public:
  virtual ~DeviceSteps() = default;

  // The steps on one stream. The destructor frees their memory in the order of the stream.
  class OnStream {
   public:
    virtual ~OnStream() = default;
    // Puts on the stream what follows the operation.
    virtual void finish() = 0;
  };
  // Puts on the stream what precedes the operation, and gives the call its buffers; in a group of one rank
  // both are the same memory. The device's context is current.
  virtual std::unique_ptr<OnStream> begin(Call& call, DeviceStream* stream) const = 0;
};

}  // namespace dsc
