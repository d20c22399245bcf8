// Finds out how fast the kernel copies memory between processes on this machine.
#pragma once

namespace dsc {

// Times for the same number of bytes, in microseconds.
struct CopyTrial {
  double kernel_us;      // one copy by the kernel (process_vm_readv)
  double two_copies_us;  // into a staging buffer and out of it
  // The sender and the receiver share the two copies, so one copy must be clearly faster.
  bool kernel_wins() const noexcept { return kernel_us > 0 && kernel_us < 0.75 * two_copies_us; }
};

// The first call measures, which takes less than a millisecond. Both times are 0 if the kernel refuses to
// copy.
const CopyTrial& copy_trial() noexcept;

}  // namespace dsc
