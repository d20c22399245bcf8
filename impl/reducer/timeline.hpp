// Records when the gradients of an iteration became ready and when its buckets were reduced.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "control/iteration_source.hpp"

namespace dsc {

// The times of one iteration, as CLOCK_MONOTONIC times in nanoseconds; 0 means that the event did not happen.
struct IterationTimes {
  int64_t begun = 0;
  int64_t finishing = 0;  // when finish() was called
  int64_t finished = 0;
  std::vector<int64_t> ready;     // when each gradient became ready, by parameter
  std::vector<int64_t> launched;  // when each bucket was launched
  std::vector<int64_t> reduced;   // when each bucket was reduced
};

// Takes time stamps during an iteration. Any thread may call a function, but only once per parameter or
// bucket.
class Timeline final : public IterationSource {
 public:
  Timeline(uint64_t group, std::vector<std::string> params)
      : group_(group), params_(std::move(params)), ready_(params_.size()) {}

  // Must be called between iterations. Sets the bucket of each parameter and the size of each bucket.
  void set_buckets(std::span<const size_t> bucket_of, std::vector<size_t> bytes);
  void begin() noexcept;
  void ready(size_t param) noexcept { stamp(ready_[param]); }
  void launched(size_t bucket) noexcept { stamp(launched_[bucket]); }
  void reduced(size_t bucket, int64_t ticks) noexcept { stamp(reduced_[bucket], ticks); }
  void finishing() noexcept { stamp(finishing_); }
  void finished() noexcept { stamp(finished_); }

  // Must be called between iterations. Returns the times of the latest one.
  IterationTimes read() const;
  RecordedIteration read_iteration() const override;

 private:
  using Ticks = std::atomic<int64_t>;
  static void stamp(Ticks& time, int64_t ticks = tick_now()) noexcept {
    time.store(ticks, std::memory_order_relaxed);
  }

  const uint64_t group_;
  const std::vector<std::string> params_;
  std::atomic<uint64_t> number_{0};
  Ticks begun_{0};
  Ticks finishing_{0};
  Ticks finished_{0};
  std::vector<Ticks> ready_;
  // Protects the following members, because a trace may read them while set_buckets() replaces them.
  mutable Mutex mutex_;
  std::vector<size_t> bucket_of_;
  std::vector<size_t> bytes_;
  std::vector<Ticks> launched_;
  std::vector<Ticks> reduced_;
};

}  // namespace dsc
