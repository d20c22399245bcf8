// Replaces process_vm_readv, so that a test knows whether a rank is in a large copy by the kernel.
#pragma once

#include <atomic>
#include <cstdint>

namespace fault {

// From now on, the number is that of the threads of this process that are in such a copy. A signal from
// another process arrives before the end of the copy, because a copy counts as large if it takes tens of
// microseconds.
void count_kernel_copies(std::atomic<int32_t>& number);

}  // namespace fault
