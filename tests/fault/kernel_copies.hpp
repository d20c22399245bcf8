// Replaces process_vm_readv, so that a test knows whether a rank is in a large copy by the kernel.
#pragma once

#include <atomic>
#include <cstdint>

namespace fault {

// Counts in `number` the threads of this process that are in a large copy. It takes tens of microseconds, so
// a signal usually arrives before it ends. With a sanitizer, only its check of these calls is lost.
void count_kernel_copies(std::atomic<int32_t>& number);

}  // namespace fault
