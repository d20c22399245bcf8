// Binds a world to devices at start-up.
#pragma once

#include <memory>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "comm/engine.hpp"

namespace dsc {

// Collective: either all ranks are bound, each to one device, or none is, and this returns null. Throws
// NO_BACKEND on all ranks if a device is required and one rank has none.
std::shared_ptr<DeviceEngine> bind_nccl(const std::shared_ptr<GroupEngine>& host,
                                        const DeviceRequest& request, const Environment& environment,
                                        Deadline deadline);

}  // namespace dsc
