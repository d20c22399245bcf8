// The durations of the phases of an iteration, and their means over iterations. PyTorch's DDP logs the same
// data.
#pragma once

#include <cstdint>

#include "reducer/timeline.hpp"

namespace dsc {

// Times of the phases in nanoseconds. Starts and ends are CLOCK_MONOTONIC times; 0 means that the event did
// not happen.
struct PhaseTimes {
  int64_t forward_compute_start = 0;   // when begin() was called
  int64_t backward_compute_start = 0;  // when the first gradient was marked
  int64_t backward_compute_end = 0;    // when the last gradient was marked
  int64_t backward_comm_start = 0;     // when the first bucket was launched
  int64_t backward_comm_end = 0;       // when the last bucket was reduced
  int64_t finished = 0;                // when finish() had written the results

  int64_t forward_compute() const noexcept { return backward_compute_start - forward_compute_start; }
  int64_t backward_compute() const noexcept { return backward_compute_end - backward_compute_start; }
  int64_t backward_comm() const noexcept { return backward_comm_end - backward_comm_start; }
  // Returns the time in which gradients were computed and buckets were reduced simultaneously.
  int64_t overlap() const noexcept;
  // Returns the time from the last gradient to the results. No computation overlaps with it.
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

// Samples the times of some iterations: 1 to 10, and every hundredth.
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
