// The worlds that dsc_world() can return: the world of the process, and those of threads that are ranks.
#pragma once

#include <cstdint>

#include "session/start_up.hpp"

namespace dsc {

// Returns the handle of the existing world, or creates a world.
uint64_t init_world(const InitOptions* options, uint32_t library_version);

// Returns the handle of the calling thread's world; if it has none, that of the process's world. Returns 0 if
// neither exists.
uint64_t current_world();

// Ends the world. Waits for all ranks unless the world has failed. Releases the world in any case, and only
// then throws an error.
void finalize_world();

}  // namespace dsc
