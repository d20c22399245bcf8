// The rank that log records carry.
#pragma once

#include <cstdint>

namespace dsc {

// Sets the rank of this process or, with `of_thread`, of the calling thread only; -1 means none.
void set_log_rank(int32_t rank, bool of_thread) noexcept;

// Returns the rank of the calling thread or else of the process; -1 means none.
int32_t log_rank() noexcept;

}  // namespace dsc
