// Monotonic time, deadlines, and cheap time stamps for statistics. Times are in nanoseconds unless a name
// says otherwise.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>
#include <limits>

namespace dsc {

inline constexpr int64_t kNsPerMs = 1'000'000;
inline constexpr int64_t kNsPerSecond = 1'000'000'000;

inline int64_t now_ns() noexcept {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kNsPerSecond + time.tv_nsec;
}

// A point in time on CLOCK_MONOTONIC.
struct Deadline {
  int64_t ns;

  static Deadline after_ms(int64_t ms) noexcept { return {now_ns() + ms * kNsPerMs}; }
  static Deadline never() noexcept { return {std::numeric_limits<int64_t>::max()}; }
  bool passed() const noexcept { return ns != std::numeric_limits<int64_t>::max() && now_ns() >= ns; }
  int64_t remaining_ns() const noexcept {
    if (ns == std::numeric_limits<int64_t>::max()) return ns;
    const int64_t left = ns - now_ns();
    return left > 0 ? left : 0;
  }
  // Rounds up, so that a wait of this length does not end before the deadline.
  int64_t remaining_ms() const noexcept {
    const int64_t left = remaining_ns();
    return left == std::numeric_limits<int64_t>::max() ? left : (left + kNsPerMs - 1) / kNsPerMs;
  }
};

inline Deadline sooner(Deadline a, Deadline b) noexcept { return a.ns < b.ns ? a : b; }
inline Deadline later(Deadline a, Deadline b) noexcept { return a.ns < b.ns ? b : a; }

namespace clock_detail {
// Nanoseconds per tick of the time-stamp counter; 0 if the counter is not used or not yet measured.
inline std::atomic<double> ns_per_tick{0};
int64_t other_tick_now() noexcept;
int64_t other_ticks_to_ns(int64_t ticks) noexcept;
}  // namespace clock_detail

// Returns a time stamp that takes a few nanoseconds to get: the time-stamp counter if the kernel itself uses
// it as its clock, otherwise now_ns().
inline int64_t tick_now() noexcept {
#if defined(__x86_64__)
  if (clock_detail::ns_per_tick.load(std::memory_order_relaxed) != 0)
    return static_cast<int64_t>(__builtin_ia32_rdtsc());
#endif
  return clock_detail::other_tick_now();
}

inline int64_t ticks_to_ns(int64_t ticks) noexcept {
  const double rate = clock_detail::ns_per_tick.load(std::memory_order_relaxed);
  return rate != 0 ? static_cast<int64_t>(static_cast<double>(ticks) * rate)
                   : clock_detail::other_ticks_to_ns(ticks);
}

// Converts earlier time stamps to CLOCK_MONOTONIC. The rate is measured over the whole time since the first
// time stamp of the process, so that the error stays small.
struct TickScale {
  int64_t ticks;
  int64_t ns;
  double ns_per_tick;

  int64_t ns_of(int64_t then) const noexcept {
    return ns + static_cast<int64_t>(static_cast<double>(then - ticks) * ns_per_tick);
  }
};
TickScale tick_scale() noexcept;

}  // namespace dsc
