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

struct Sample {
  int64_t ns;
  uint64_t tsc;
};

// The tightest of several pairs: a thread that loses the processor between the two clocks spoils only its own
// pair.
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

// Nanoseconds per tick, measured once per process; 0 where the counter is not used.
double measure_ns_per_tick() noexcept {
  if (!kernel_trusts_tsc()) return 0;
  const Sample start = take_sample();
  while (now_ns() - start.ns < 2 * kNsPerMs) {
  }
  const Sample end = take_sample();
  return static_cast<double>(end.ns - start.ns) / static_cast<double>(end.tsc - start.tsc);
}

double ns_per_tick() noexcept {
  static const double measured = measure_ns_per_tick();
  return measured;
}

}  // namespace

int64_t tick_now() noexcept { return ns_per_tick() > 0 ? static_cast<int64_t>(__rdtsc()) : now_ns(); }

int64_t ticks_to_ns(int64_t ticks) noexcept {
  return ns_per_tick() > 0 ? static_cast<int64_t>(static_cast<double>(ticks) * ns_per_tick()) : ticks;
}

#else
int64_t tick_now() noexcept { return now_ns(); }
int64_t ticks_to_ns(int64_t ticks) noexcept { return ticks; }
#endif

}  // namespace dsc
