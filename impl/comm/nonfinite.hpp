// Counts of NaNs and infinities among the inputs of a communicator's reductions.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/mutex.hpp"
#include "control/call.hpp"
#include "dtype/reduce.hpp"

namespace dsc {

struct NonFiniteTotals {
  uint64_t elements = 0;
  uint64_t operations = 0;  // number of operations whose inputs contained NaNs or infinities
  uint64_t sequence = 0;    // sequence number of the first such operation
  // Index of the first NaN or infinity in the input of that operation, on the first rank that has one.
  uint64_t index = 0;
  int rank = -1;
  const char* operation = "";
};

// Stores which check a communicator runs, and the totals. Any thread.
class NonFiniteLedger {
 public:
  explicit NonFiniteLedger(NonFiniteCheck check) noexcept : check_(check) {}

  NonFiniteCheck check() const noexcept { return check_.load(std::memory_order_relaxed); }
  // Returns the check for a reduction of this type. It is kOff for integers, because they are always finite.
  NonFiniteCheck check_for(int32_t dtype) const noexcept {
    const NonFiniteCheck wanted = check();
    return wanted != NonFiniteCheck::kOff && is_floating(dtype) ? wanted : NonFiniteCheck::kOff;
  }
  void set_check(NonFiniteCheck check) noexcept { check_.store(check, std::memory_order_relaxed); }

  void add(OpKind kind, uint64_t sequence, const NonFinite& found) noexcept {
    MutexLock lock(mutex_);
    totals_.elements += found.count;
    if (totals_.operations++ > 0) return;
    totals_.sequence = sequence;
    totals_.index = found.index;
    totals_.rank = found.source;
    totals_.operation = op_kind_name(kind);
  }

  // Returns the totals, and resets them if `clear` is set.
  NonFiniteTotals totals(bool clear) {
    MutexLock lock(mutex_);
    return clear ? std::exchange(totals_, {}) : totals_;
  }

 private:
  std::atomic<NonFiniteCheck> check_;
  Mutex mutex_;
  NonFiniteTotals totals_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
