// A count of things that happened, to wait for the next one of many.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.hpp"
#include "base/mutex.hpp"

namespace dsc {

class Pulse {
 public:
  // Any thread; costs little while nobody waits.
  void beat() noexcept {
    count_.fetch_add(1);
    if (waiting_.load() == 0) return;
    MutexLock lock(mutex_);
    changed_.notify_all();
  }

  uint64_t count() const noexcept { return count_.load(); }

  // Until the count is another than `seen`; false when the deadline passes.
  bool wait(uint64_t seen, Deadline deadline) {
    MutexLock lock(mutex_);
    waiting_.fetch_add(1);
    bool moved;
    while (!(moved = count_.load() != seen) && !deadline.passed()) {
      const int64_t most_ns = 3600 * kNsPerSecond;  // more would overflow the clock's sums
      const int64_t left_ns = deadline.remaining_ns();
      changed_.wait_for(mutex_, std::chrono::nanoseconds(left_ns < most_ns ? left_ns : most_ns));
    }
    waiting_.fetch_sub(1);
    return moved;
  }

 private:
  std::atomic<uint64_t> count_{0};
  std::atomic<int> waiting_{0};
  Mutex mutex_;
  Condition changed_;
};

}  // namespace dsc
