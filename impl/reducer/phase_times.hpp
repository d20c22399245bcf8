// How long the parts of an iteration took, and their means over iterations, as PyTorch's DDP logs them.
#pragma once

#include <cstdint>

#include "reducer/timeline.hpp"

namespace dsc {

// In nanoseconds. Starts and ends are times of CLOCK_MONOTONIC; 0: did not happen.
struct PhaseTimes {
  int64_t forward_compute_start = 0;   // begin()
  int64_t backward_compute_start = 0;  // the first gradient was marked
  int64_t backward_compute_end = 0;    // the last one was
  int64_t backward_comm_start = 0;     // the first bucket was launched
  int64_t backward_comm_end = 0;       // the last one was reduced
  int64_t finished = 0;                // finish() has written the results

  int64_t forward_compute() const noexcept { return backward_compute_start - forward_compute_start; }
  int64_t backward_compute() const noexcept { return backward_compute_end - backward_compute_start; }
  int64_t backward_comm() const noexcept { return backward_comm_end - backward_comm_start; }
  // Time in which gradients were computed while buckets were reduced.
  int64_t overlap() const noexcept;
  // Time from the last gradient to the results, which no computation hides.
  int64_t exposed() const noexcept { return finished - backward_compute_end; }
};

PhaseTimes phases_of(const IterationTimes& times);

struct MeanPhaseTimes {
  int64_t forward_compute = 0;
  int64_t backward_compute = 0;
  int64_t backward_comm = 0;
  int64_t overlap = 0;
  int64_t exposed = 0;
};

// Takes samples of iterations: of the first ten after the very first, and of every hundredth.
class PhaseSampler {
 public:
  static bool is_sampled(uint64_t iteration) noexcept;
  void add(const IterationTimes& times);

  const PhaseTimes& latest() const noexcept { return latest_; }
  MeanPhaseTimes mean() const noexcept;

 private:
  PhaseTimes latest_;
  MeanPhaseTimes sum_;
  int64_t samples_ = 0;
};

}  // namespace dsc
