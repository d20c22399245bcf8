// Binds a world to devices at start-up.
#pragma once

#include <memory>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "comm/engine.hpp"

namespace dsc {

// Collective: binds either all ranks, each to one device, or no rank. In the latter case, returns null.
// Throws NO_BACKEND on all ranks if a device is required and one rank has none.
std::shared_ptr<DeviceEngine> bind_nccl(const std::shared_ptr<GroupEngine>& host,
                                        const DeviceRequest& request, const Environment& environment,
                                        Deadline deadline);

}  // namespace dsc
