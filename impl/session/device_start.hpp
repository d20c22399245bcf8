// Binds a world to devices at start-up.
#pragma once

#include <memory>
#include <string>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "comm/engine.hpp"

namespace dsc {

struct DeviceRequest {
  bool required = false;     // false: only if a device was named or is in use
  int32_t number = -1;       // -1: the device in use, or by local rank
  std::string cuda_library;  // path; empty: it is searched
  std::string nccl_library;
};

// Collective: either all ranks are bound, each to one device, or none is, and this returns null. Throws
// NO_BACKEND on all ranks if a device is required and one rank has none.
std::shared_ptr<DeviceEngine> bind_device(const std::shared_ptr<GroupEngine>& host,
                                          const DeviceRequest& request, const Environment& environment,
                                          Deadline deadline);

}  // namespace dsc
