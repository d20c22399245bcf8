// How waiting threads of other processes are woken: one futex word per process.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.hpp"

namespace dsc {

// Lies in shared memory. A thread that wants to sleep announces itself, looks once more at what it waits for,
// and sleeps unless the word has moved since. Who changes something that others may wait for rings; it costs
// one load when nobody sleeps. All accesses are sequentially consistent: the change comes before the look at
// `sleepers`, and announcing before the second look, so that one of the two sides always sees the other.
struct alignas(64) Notifier {
  std::atomic<uint32_t> word;
  std::atomic<uint32_t> sleepers;

  void notify() noexcept {
    if (sleepers.load(std::memory_order_seq_cst) != 0) wake();
  }
  void wake() noexcept;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

// A thread that is about to sleep on a notifier.
class NotifierWait {
 public:
  explicit NotifierWait(Notifier& notifier) noexcept : notifier_(notifier) {
    notifier_.sleepers.fetch_add(1, std::memory_order_seq_cst);
    seen_ = notifier_.word.load(std::memory_order_seq_cst);
  }
  ~NotifierWait() { notifier_.sleepers.fetch_sub(1, std::memory_order_seq_cst); }
  NotifierWait(const NotifierWait&) = delete;
  NotifierWait& operator=(const NotifierWait&) = delete;

  // Returns when the notifier has rung since construction, after at most max_ns, or early.
  void sleep(int64_t max_ns) noexcept;

 private:
  Notifier& notifier_;
  uint32_t seen_;
};

// Spin, then yield, then sleep. `work` is tried between; it returns true when the wait is over.
class Backoff {
 public:
  // For waits on what takes long, and needs a processor that others would be kept from.
  static constexpr int kSleepSoon = -1;

  Backoff(Notifier& notifier, int spins) noexcept
      : notifier_(notifier),
        spins_(std::max(spins, 0)),
        patience_(spins == kSleepSoon ? 1 : spins + kYields) {}

  // One step of patience. True when the caller has waited long enough that it should look at the clock.
  template <typename Ready>
  bool pause(Ready&& ready, int64_t max_sleep_ns = kMaxSleepNs) {
    const int turn = turn_;
    if (turn < patience_) ++turn_;
    if (turn < spins_) {
      relax();
      return false;
    }
    if (turn < patience_) {
      // By now all others of this processor have had their turn: they would only hand it round.
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
  static constexpr int kPauses = 64;  // between yields at first: about a microsecond
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
  int patience_;  // turns before it sleeps
  int turn_ = 0;
};

// Spins that are worth it: none when more ranks than processors want to run.
int spin_limit(bool oversubscribed) noexcept;

}  // namespace dsc
