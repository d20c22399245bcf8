// A count of things that happened, to wait for the next one of many.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "control/notifier.hpp"

namespace dsc {

// It sleeps on a futex instead of a condition variable, whose lock the waiting thread and Gloo's thread would
// fight for (an all_reduce of 25 MiB on two ranks took 2,000 context switches with one, and 250 without).
class EventCount {
 public:
  // Any thread; costs little while nobody waits, and never waits itself.
  void increment() noexcept {
    count_.fetch_add(1);
    notifier_.notify();
  }

  uint64_t count() const noexcept { return count_.load(); }

  // Until the count is another than `seen`; false when the deadline passes.
  bool wait(uint64_t seen, Deadline deadline) {
    for (;;) {
      NotifierWait sleep(notifier_);
      if (count_.load() != seen) return true;
      if (deadline.passed()) return false;
      sleep.sleep(deadline.remaining_ns());
    }
  }

 private:
  std::atomic<uint64_t> count_{0};
  Notifier notifier_{};
};

}  // namespace dsc
