// The worlds that dsc_world() can return: that of the process, and those of threads that are ranks.
#pragma once

#include <cstdint>

#include "session/start_up.hpp"

namespace dsc {

// Returns the handle of the existing world, or makes a new one.
uint64_t init_world(const InitOptions* options, uint32_t library_version);

// Returns the handle of the calling thread's or the process's world; 0 if there is none or it was
// destroyed.
uint64_t current_world();

// Ends the world: waits for all ranks unless it has failed, releases it in any case, and then throws
// errors.
void finalize_world();

}  // namespace dsc
