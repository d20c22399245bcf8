// Judges how long somebody was silent. Pure: it is told the time.
#pragma once

#include <cstdint>
#include <utility>

#include "base/clock.hpp"

namespace dsc {

inline constexpr int64_t kReportSilenceMs = 2000;

class Silence {
 public:
  enum class News { kNone, kQuiet, kStalled, kBack };

  // stall_timeout_ms 0: it is never kStalled.
  Silence(int64_t stall_timeout_ms, int64_t now) : stall_ns_(stall_timeout_ms * kNsPerMs), since_ns_(now) {}

  // The time up to now does not count: it was not asked, or the one who listens did not run himself.
  void begin_again(int64_t now) { since_ns_ = now; }

  // kBack if it was quiet before.
  News heard(int64_t now) {
    since_ns_ = now;
    stalled_ = false;
    return std::exchange(quiet_, false) ? News::kBack : News::kNone;
  }

  // Each news once.
  News look(int64_t now) {
    const int64_t silent = silent_ns(now);
    if (stall_ns_ > 0 && silent >= stall_ns_ && !std::exchange(stalled_, true)) return News::kStalled;
    if (silent >= kReportSilenceMs * kNsPerMs && !std::exchange(quiet_, true)) return News::kQuiet;
    return News::kNone;
  }

  int64_t silent_ns(int64_t now) const { return now - since_ns_; }

 private:
  int64_t stall_ns_;
  int64_t since_ns_;
  bool quiet_ = false;
  bool stalled_ = false;
};

// Whether the one who judges ran himself: if not, he accuses nobody.
class OwnPace {
 public:
  static constexpr int64_t kPeriodMs = 250;  // he calls at least so often
  static constexpr int64_t kGapPeriods = 4;

  explicit OwnPace(int64_t now) : last_ns_(now) {}

  bool had_gap(int64_t now) {
    const bool gap = now - last_ns_ > kGapPeriods * kPeriodMs * kNsPerMs;
    last_ns_ = now;
    return gap;
  }

 private:
  int64_t last_ns_;
};

}  // namespace dsc
