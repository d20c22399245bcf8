// The squared norm and the number of non-finite elements of what a launch reads, summed in an order that
// depends on the launch alone: by thread, then block, then over the blocks by the last one.
#pragma once

#include "device/kernels/memory.hpp"

namespace dsc::kernels {

inline constexpr unsigned kMaxBlocks = 1024;

struct Norm {
  double squared;
  uint64_t nonfinite;
};

// In device memory. `total` grows with every launch; all is zeroed by whoever allocates it.
struct NormState {
  Norm total;
  uint32_t blocks_done;
  uint32_t unused;
  Norm of_block[kMaxBlocks];
};

struct NoWatch {
  template <class Wide>
  DSC_HD void see(Wide) {}
};

struct NormWatch {
  Norm seen = {0, 0};

  template <class Wide>
  DSC_HD void see(Wide v) {
    const double wide = v;
    seen.squared += wide * wide;
    seen.nonfinite += is_finite(v) ? 0 : 1;
  }
};

DSC_HD inline Norm operator+(const Norm& a, const Norm& b) {
  return {a.squared + b.squared, a.nonfinite + b.nonfinite};
}

// Halves a block's sums: `step` is half as many as there still are. After all halvings sums[0] is of them
// all.
DSC_HD inline void halve(Norm* sums, unsigned step, unsigned thread) {
  if (thread < step) sums[thread] = sums[thread] + sums[thread + step];
}

// A thread's part of the sums of all blocks.
DSC_HD inline Norm sum_blocks(const NormState& state, unsigned blocks, Place thread) {
  Norm sum = {0, 0};
  DSC_NOT_UNROLLED
  for (unsigned block = thread.index; block < blocks; block += thread.count) {
    const volatile Norm& of_block = state.of_block[block];
    sum = sum + Norm{of_block.squared, of_block.nonfinite};
  }
  return sum;
}

DSC_HD inline void finish(NormState& state, const Norm& sum) {
  state.total = state.total + sum;
  state.blocks_done = 0;
}

}  // namespace dsc::kernels
