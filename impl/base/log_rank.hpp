// Which rank log records are of, as DSC_LOG's lines say it.
#pragma once

#include <cstdint>

namespace dsc {

// Of this process, or with `of_thread` of the calling thread alone, which has a rank of its own; -1: none.
void set_log_rank(int32_t rank, bool of_thread) noexcept;

// The thread's rank, or else the process's; -1: none.
int32_t log_rank() noexcept;

}  // namespace dsc
