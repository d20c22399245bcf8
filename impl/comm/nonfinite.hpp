// What a communicator knows of NaNs and infinities among the inputs of its reductions.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "base/mutex.hpp"
#include "base/process_guard.hpp"
#include "control/call.hpp"
#include "dtype/reduce.hpp"

namespace dsc {

struct NonFiniteTotals {
  uint64_t elements = 0;
  uint64_t operations = 0;  // that had some
  uint64_t sequence = 0;    // the first of these
  uint64_t index = 0;       // the first element of the first rank there
  int rank = -1;
  std::string operation;
};

// Any thread.
class NonFiniteLedger {
 public:
  explicit NonFiniteLedger(NonFiniteCheck check) noexcept : check_(check) {}

  NonFiniteCheck check() const noexcept { return check_.load(std::memory_order_relaxed); }
  // Whether a reduction of this type looks at its inputs: integers are always finite.
  NonFiniteCheck check_for(int32_t dtype) const noexcept {
    const NonFiniteCheck wanted = check();
    return wanted != NonFiniteCheck::kOff && is_floating(dtype) ? wanted : NonFiniteCheck::kOff;
  }
  void set_check(NonFiniteCheck check) noexcept { check_.store(check, std::memory_order_relaxed); }

  void add(OpKind kind, uint64_t sequence, const NonFinite& found) noexcept {
    std::string name;
    call_out([&] { name = op_kind_name(kind); });  // without memory it stays empty
    MutexLock lock(mutex_);
    totals_.elements += found.count;
    if (totals_.operations++ > 0) return;
    totals_.sequence = sequence;
    totals_.index = found.index;
    totals_.rank = found.source;
    totals_.operation = std::move(name);
  }

  // With `clear`, counting starts anew.
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
