// Counts the running calls that mark or add gradients, from the moment they are accepted. So the end of an
// iteration can wait until none of them still copies memory or starts buckets.
#pragma once

#include <time.h>

#include <atomic>

#include "base/clock.hpp"

namespace dsc {

class MarkingCount {
 public:
  void enter() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  void leave() noexcept { count_.fetch_sub(1, std::memory_order_release); }

  // Returns false if a call is still running at the deadline.
  bool wait_until_none(Deadline deadline) const noexcept {
    constexpr timespec kPollPeriod{0, 100'000};
    while (count_.load(std::memory_order_acquire) != 0) {
      if (deadline.passed()) return false;
      nanosleep(&kPollPeriod, nullptr);
    }
    return true;
  }

 private:
  std::atomic<int> count_{0};
};

// Ends the count of a call when the scope ends.
class MarkScope {
 public:
  explicit MarkScope(MarkingCount& count) noexcept : count_(count) {}
  ~MarkScope() { count_.leave(); }
  MarkScope(const MarkScope&) = delete;
  MarkScope& operator=(const MarkScope&) = delete;

 private:
  MarkingCount& count_;
};

}  // namespace dsc
