// When the gradients of an iteration came and when its buckets were reduced.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/clock.hpp"

namespace dsc {

// The times of one iteration in nanoseconds of CLOCK_MONOTONIC; 0: did not happen.
struct IterationTimes {
  int64_t begun = 0;
  int64_t finishing = 0;  // finish() was called
  int64_t finished = 0;
  std::vector<int64_t> ready;     // by parameter
  std::vector<int64_t> launched;  // by bucket
  std::vector<int64_t> reduced;   // by bucket
};

// Takes time stamps during an iteration. Any thread may note, each item once.
class Timeline {
 public:
  void begin(size_t params, size_t buckets);
  void ready(size_t param) noexcept { ready_[param].store(tick_now(), std::memory_order_relaxed); }
  void launched(size_t bucket) noexcept { launched_[bucket] = tick_now(); }
  void reduced(size_t bucket, int64_t ticks) noexcept { reduced_[bucket] = ticks; }
  void finishing() noexcept { finishing_ = tick_now(); }
  void finished() noexcept { finished_ = tick_now(); }

  // Between iterations: the times of the latest one.
  IterationTimes read() const;

 private:
  int64_t begun_ = 0;
  int64_t finishing_ = 0;
  int64_t finished_ = 0;
  std::vector<std::atomic<int64_t>> ready_;
  std::vector<int64_t> launched_;
  std::vector<int64_t> reduced_;
};

}  // namespace dsc
