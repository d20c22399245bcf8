// The rank that is shown in log records.
#pragma once

#include <cstdint>

namespace dsc {

// Sets the rank of this process or, with `of_thread`, of the calling thread only. -1 means no rank.
void set_log_rank(int32_t rank, bool of_thread) noexcept;

// Returns the rank of the calling thread; if it has none, the rank of the process. -1 means no rank.
int32_t log_rank() noexcept;

}  // namespace dsc
