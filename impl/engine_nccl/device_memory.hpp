// Memory of dsc_mem_alloc() on a device: NCCL's own where it has some, and registered with the communicator
// where it can be, so that NCCL moves it without copying.
#pragma once

#include <memory>

#include "engine_nccl/device_engine.hpp"

namespace dsc {

// Collective among the ranks of the engine's communicator: all of them have it, zeroed, or none. Freed by
// release_memory().
void* allocate_device_memory(const std::shared_ptr<DeviceEngine>& engine, size_t bytes);

}  // namespace dsc
