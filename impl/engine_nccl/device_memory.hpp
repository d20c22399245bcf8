// Memory of dsc_mem_alloc() on a device. It comes from NCCL's allocator if there is one, and is registered
// with the communicator if possible, so that NCCL needs no copies.
#pragma once

#include <memory>

#include "engine_nccl/device_engine.hpp"

namespace dsc {

// Collective among the ranks of the engine's communicator: returns zeroed memory on all ranks, or throws on
// all. release_memory() frees it.
void* allocate_device_memory(const std::shared_ptr<DeviceEngine>& engine, size_t bytes);

}  // namespace dsc
