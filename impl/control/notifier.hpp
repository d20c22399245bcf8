// Wakes threads of other processes. Each process has one futex word (an eventcount).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.hpp"

namespace dsc {

// A futex word in shared memory. A thread that wants to sleep announces itself, checks its condition once
// more, and sleeps unless the word has changed since the announcement. A thread that changes something for
// which others may wait calls notify(), which is a single load if nobody sleeps.
//
// All accesses are sequentially consistent. The change comes before the load of `sleepers`, and the
// announcement comes before the second check. Therefore either the notifier sees the sleeper, or the sleeper
// sees the change.
struct alignas(64) Notifier {
  std::atomic<uint32_t> word;
  std::atomic<uint32_t> sleepers;

  void notify() noexcept {
    if (sleepers.load(std::memory_order_seq_cst) != 0) wake();
  }
  void wake() noexcept;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

// Announces that the calling thread is about to sleep on a notifier.
class NotifierWait {
 public:
  explicit NotifierWait(Notifier& notifier) noexcept : notifier_(notifier) {
    notifier_.sleepers.fetch_add(1, std::memory_order_seq_cst);
    seen_ = notifier_.word.load(std::memory_order_seq_cst);
  }
  ~NotifierWait() { notifier_.sleepers.fetch_sub(1, std::memory_order_seq_cst); }
  NotifierWait(const NotifierWait&) = delete;
  NotifierWait& operator=(const NotifierWait&) = delete;

  // Returns after a notification since construction, after max_ns, or spuriously.
  void sleep(int64_t max_ns) noexcept;

 private:
  Notifier& notifier_;
  uint32_t seen_;
};

// Waits for a condition: first spins, then yields, then sleeps. Each call of pause() makes one step.
class Backoff {
 public:
  // A value of `spins` for long waits. The thread then sleeps soon, so that other threads get the processor.
  static constexpr int kSleepSoon = -1;

  Backoff(Notifier& notifier, int spins) noexcept
      : notifier_(notifier),
        spins_(std::max(spins, 0)),
        steps_before_sleep_(spins == kSleepSoon ? 1 : spins + kYields) {}

  // Makes one step of waiting. Returns true if the caller has waited long enough to check the clock.
  template <typename Ready>
  bool pause(Ready&& ready, int64_t max_sleep_ns = kMaxSleepNs) {
    const int turn = turn_;
    if (turn < steps_before_sleep_) ++turn_;
    if (turn < spins_) {
      relax();
      return false;
    }
    if (turn < steps_before_sleep_) {
      // After the first yields, every other thread of this processor has run once. More yields would only
      // switch between these threads, so this thread pauses between two yields.
      const int hesitation = turn - spins_ - kEagerYields;
      if (hesitation >= 0 && becomes_ready(kPauses << std::min(hesitation, kMostDoublings), ready))
        return false;
      yield();
      return hesitation >= 0;
    }
    NotifierWait sleep(notifier_);
    if (!ready()) sleep.sleep(std::min(max_sleep_ns, kMaxSleepNs));
    return true;
  }

  void reset() noexcept { turn_ = 0; }

 private:
  static constexpr int kEagerYields = 4;
  static constexpr int kYields = kEagerYields + 10;
  // Number of pause instructions before the first of the later yields. They take about a microsecond
  // together.
  static constexpr int kPauses = 64;
  static constexpr int kMostDoublings = 4;
  static constexpr int kPausesPerLook = 8;
  static constexpr int64_t kMaxSleepNs = 50 * kNsPerMs;

  static void relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  static void yield() noexcept;

  template <typename Ready>
  static bool becomes_ready(int pauses, Ready&& ready) {
    for (int i = 0; i < pauses; i += kPausesPerLook) {
      for (int k = 0; k < kPausesPerLook; ++k) relax();
      if (ready()) return true;
    }
    return false;
  }

  Notifier& notifier_;
  int spins_;
  int steps_before_sleep_;
  int turn_ = 0;
};

// Returns how many times to spin: 0 if there are more ranks than processors.
int spin_limit(bool oversubscribed) noexcept;

}  // namespace dsc
