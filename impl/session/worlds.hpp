// The worlds that dsc_world() can give: that of the process, and those of threads that are ranks of their
// own.
#pragma once

#include <cstdint>

#include "session/start_up.hpp"

namespace dsc {

// Returns the handle of the world that exists or of a new one.
uint64_t init_world(const InitOptions* options, uint32_t library_version);

// 0 when there is none, or it was destroyed.
uint64_t current_world();

// The world ends: waits for all ranks unless it failed. Releases it in any case, then throws what went wrong.
void finalize_world();

// As Comm::progress(), for all worlds of this process.
bool progress_all(Deadline deadline);

}  // namespace dsc
