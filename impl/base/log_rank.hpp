// The rank that log records name.
#pragma once

#include <cstdint>

namespace dsc {

// Sets the rank of this process, or with `of_thread` of the calling thread alone; -1: none.
void set_log_rank(int32_t rank, bool of_thread) noexcept;

// Returns the calling thread's rank, or else the process's; -1: none.
int32_t log_rank() noexcept;

}  // namespace dsc
