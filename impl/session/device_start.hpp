// From a wish for a device to a world that is bound to it.
#pragma once

#include <memory>
#include <string>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "comm/comm.hpp"

namespace dsc {

struct DeviceRequest {
  bool required = false;     // else only where the program has named a device, or works on one already
  int32_t number = -1;       // -1: that of the current context, or by the local rank
  std::string cuda_library;  // files; empty: they are searched
  std::string nccl_library;
};

// Collective: all ranks are bound, each to one device, or none is. Gives back `host` if it is not bound.
// Throws NO_BACKEND on all ranks if it is required and cannot be had on one.
std::shared_ptr<Comm> bind_device(std::shared_ptr<Comm> host, const DeviceRequest& request,
                                  const Environment& environment, Deadline deadline);

}  // namespace dsc
