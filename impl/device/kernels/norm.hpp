// Computes the squared norm, the largest magnitude and the number of non-finite elements of a launch's input.
// Each thread forms its sum, then each block; the last block to finish adds up the sums of all blocks. The
// order depends only on the shape of the launch, so results are reproducible.
#pragma once

#include "device/kernels/memory.hpp"

namespace dsc::kernels {

inline constexpr unsigned kMaxBlocks = 1024;

// The result: the sum of squares, the largest magnitude of the elements that are not NaN, and the number of
// elements that are NaN or infinite.
struct Norm {
  double squared;
  double most;
  uint64_t nonfinite;
};

// State in device memory, which its owner zeroes after allocating it. `total` grows with every launch.
struct NormState {
  Norm total;
  uint32_t blocks_done;
  uint32_t unused;
  Norm of_block[kMaxBlocks];
};

// A thread passes each value to a watch. NoWatch does nothing, and NormWatch accumulates the norm.
struct NoWatch {
  template <class Wide>
  DSC_HD void see(Wide) {}
};

struct NormWatch {
  Norm seen = {0, 0, 0};

  template <class Wide>
  DSC_HD void see(Wide v) {
    const double wide = v;
    const double magnitude = wide < 0 ? -wide : wide;
    seen.squared += wide * wide;
    if (magnitude > seen.most) seen.most = magnitude;
    seen.nonfinite += is_finite(v) ? 0 : 1;
  }
};

DSC_HD inline Norm operator+(const Norm& a, const Norm& b) {
  return {a.squared + b.squared, a.most > b.most ? a.most : b.most, a.nonfinite + b.nonfinite};
}

// One step of a tree reduction over the sums of a block's threads: `step` is half the number of remaining
// sums. After the last step sums[0] is the total.
DSC_HD inline void halve(Norm* sums, unsigned step, unsigned thread) {
  if (thread < step) sums[thread] = sums[thread] + sums[thread + step];
}

// Returns this thread's part of the sum over all blocks.
DSC_HD inline Norm sum_blocks(const NormState& state, unsigned blocks, GridIndex thread) {
  Norm sum = {0, 0, 0};
  DSC_NOT_UNROLLED
  for (unsigned block = thread.index; block < blocks; block += thread.count) {
    const volatile Norm& of_block = state.of_block[block];
    sum = sum + Norm{of_block.squared, of_block.most, of_block.nonfinite};
  }
  return sum;
}

// Adds the sum of this launch to the total and prepares the state for the next launch.
DSC_HD inline void finish(NormState& state, const Norm& sum) {
  state.total = state.total + sum;
  state.blocks_done = 0;
}

}  // namespace dsc::kernels
