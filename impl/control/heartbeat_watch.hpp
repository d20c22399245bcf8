// Measures for how long the heartbeats of a peer have been missing. The caller passes the current time, so
// that tests need no real clock.
#pragma once

#include <cstdint>
#include <utility>

#include "base/clock.hpp"

namespace dsc {

inline constexpr int64_t kReportSilenceMs = 2000;

// Tracks the heartbeats of one peer. Only one thread may use it.
class HeartbeatWatch {
 public:
  enum class News { kNone, kUnresponsive, kStalled, kBack };

  // With stall_timeout_ms 0 a peer is never reported as kStalled.
  HeartbeatWatch(int64_t stall_timeout_ms, int64_t now)
      : stall_ns_(stall_timeout_ms * kNsPerMs), since_ns_(now) {}

  // Starts to count anew, because the time until now proves nothing: the peer was not asked, or the observer
  // itself did not run.
  void begin_again(int64_t now) { since_ns_ = now; }

  // Records a heartbeat. Returns kBack if the peer was reported as unresponsive before.
  News heard(int64_t now) {
    since_ns_ = now;
    stalled_ = false;
    return std::exchange(unresponsive_, false) ? News::kBack : News::kNone;
  }

  // Returns kUnresponsive or kStalled when heartbeats have been missing for that long, otherwise kNone. Each
  // of these changes is reported once.
  News look(int64_t now) {
    const int64_t missed_ns = unresponsive_ns(now);
    if (stall_ns_ > 0 && missed_ns >= stall_ns_ && !std::exchange(stalled_, true)) return News::kStalled;
    if (missed_ns >= kReportSilenceMs * kNsPerMs && !std::exchange(unresponsive_, true))
      return News::kUnresponsive;
    return News::kNone;
  }

  int64_t unresponsive_ns(int64_t now) const { return now - since_ns_; }

 private:
  int64_t stall_ns_;
  int64_t since_ns_;
  bool unresponsive_ = false;
  bool stalled_ = false;
};

// Detects whether the observer itself ran without a gap. After a gap it must not report others as
// unresponsive.
class OwnPace {
 public:
  static constexpr int64_t kPeriodMs = 250;  // had_gap() must be called at least this often
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
