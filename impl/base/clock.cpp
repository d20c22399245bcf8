#include "base/clock.hpp"

#include <cstdio>
#include <cstring>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace dsc {
#if defined(__x86_64__)
namespace {

bool kernel_trusts_tsc() noexcept {
  char name[32] = {};
  std::FILE* file = std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
  if (!file) return false;
  const bool read = std::fgets(name, sizeof name, file) != nullptr;
  std::fclose(file);
  return read && std::strncmp(name, "tsc", 3) == 0;
}

// The monotonic clock and the time-stamp counter (TSC), read at nearly the same time.
struct Sample {
  int64_t ns;
  uint64_t tsc;
};

// Takes several samples and keeps the one whose reads took the shortest time. A thread that is preempted
// between the two clock reads spoils only that sample.
Sample take_sample() noexcept {
  Sample best{};
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const uint64_t before = __rdtsc();
    const int64_t ns = now_ns();
    const uint64_t width = __rdtsc() - before;
    if (width >= least) continue;
    least = width;
    best = {ns, before + width / 2};
  }
  return best;
}

double rate_between(const Sample& start, const Sample& end) noexcept {
  return static_cast<double>(end.ns - start.ns) / static_cast<double>(end.tsc - start.tsc);
}

// The first sample that the process took, and the rate measured from it and a second one.
struct Calibration {
  Sample start;
  double ns_per_tick;  // 0 if the time-stamp counter is not used
};

Calibration calibrate() noexcept {
  if (!kernel_trusts_tsc()) return {};
  const Sample start = take_sample();
  while (now_ns() - start.ns < 2 * kNsPerMs) {
  }
  return {start, rate_between(start, take_sample())};
}

// The first call measures for 2 ms. The result is kept until the process ends.
const Calibration& calibration() noexcept {
  static const Calibration measured = [] {
    const Calibration calibration = calibrate();
    clock_detail::ns_per_tick.store(calibration.ns_per_tick, std::memory_order_relaxed);
    return calibration;
  }();
  return measured;
}

double measured_ns_per_tick() noexcept { return calibration().ns_per_tick; }

}  // namespace

int64_t clock_detail::other_tick_now() noexcept {
  return measured_ns_per_tick() > 0 ? static_cast<int64_t>(__rdtsc()) : now_ns();
}

int64_t clock_detail::other_ticks_to_ns(int64_t ticks) noexcept {
  return measured_ns_per_tick() > 0
             ? static_cast<int64_t>(static_cast<double>(ticks) * measured_ns_per_tick())
             : ticks;
}

TickScale tick_scale() noexcept {
  if (measured_ns_per_tick() == 0) return {0, 0, 1};
  const Sample now = take_sample();
  return {static_cast<int64_t>(now.tsc), now.ns, rate_between(calibration().start, now)};
}

#else
int64_t clock_detail::other_tick_now() noexcept { return now_ns(); }
int64_t clock_detail::other_ticks_to_ns(int64_t ticks) noexcept { return ticks; }
TickScale tick_scale() noexcept { return {0, 0, 1}; }
#endif

}  // namespace dsc
