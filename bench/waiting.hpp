// How the ranks of one measurement wait for each other.
#pragma once

#include <sched.h>

#include <ctime>
#include <stdexcept>

namespace bench {

class Waiting {
 public:
  // Ranks spin first, unless there are more ranks than cores, and then yield. They begin without pauses,
  // because a pause can take as long as a cache line needs to another core.
  explicit Waiting(int ranks) : spins_(ranks > usable_cores() ? 0 : spins_before_yield) {}

  // Returns when ready() returns true. Throws std::runtime_error after a minute.
  template <class Ready>
  void until(const Ready& ready) const {
    for (int i = 0; i < spins_; ++i) {
      if (ready()) return;
      if (i >= spins_before_pause) pause_core();
    }
    const time_t give_up = now_s() + deadline_s;
    for (int i = 1; !ready(); ++i) {
      sched_yield();
      if (i % yields_between_clock_reads == 0 && now_s() > give_up)
        throw std::runtime_error("the other ranks did not arrive within a minute");
    }
  }

 private:
  static constexpr int spins_before_pause = 1000;
  static constexpr int spins_before_yield = 20000;
  static constexpr int yields_between_clock_reads = 4096;
  static constexpr time_t deadline_s = 60;

  static int usable_cores() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  }

  static time_t now_s() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec;
  }

  static void pause_core() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  }

  int spins_;
};

}  // namespace bench
