// A count of things that happened, to wait for the next one of many.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "control/bell.hpp"

namespace dsc {

class Pulse {
 public:
  // Any thread; costs little while nobody waits, and never waits itself.
  void beat() noexcept {
    count_.fetch_add(1);
    bell_.ring();
  }

  uint64_t count() const noexcept { return count_.load(); }

  // Until the count is another than `seen`; false when the deadline passes.
  bool wait(uint64_t seen, Deadline deadline) {
    for (;;) {
      BellSleep sleep(bell_);
      if (count_.load() != seen) return true;
      if (deadline.passed()) return false;
      sleep.sleep(deadline.remaining_ns());
    }
  }

 private:
  std::atomic<uint64_t> count_{0};
  Bell bell_{};
};

}  // namespace dsc
