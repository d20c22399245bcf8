// Marking of parameters during an iteration. The calling thread moves memory outside the lock.
#include <optional>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/overlap.hpp"
#include "dtype/dtype.hpp"
#include "reducer/reducer.hpp"

namespace dsc {

void Reducer::accumulate(size_t index, const void* gradient, void* stream) {
  check_alive();
  check_index(index);
  sparse_.expect(index, false);
  bool has_sum = false;
  {
    const MutexLock lock(intake_.mutex);
    const GradientSlot& slot = this->slot(index);
    storage().check(slot.bytes > 0 ? gradient : nullptr, stream, label(index));
    if (is_on_device() && !is_floating(slot.dtype))
      fail(DSC_ERR_UNSUPPORTED, "%s: gradients of %s cannot be accumulated on a device, only those of floats",
           label(index).c_str(), dtype_name(slot.dtype));
    intake_.marks.begin_sum(index);
    const bool is_null = !gradient && slot.bytes > 0;
    if (is_null || overlap(gradient, slot.gradient_bytes(), storage().arena(), set().layout.bytes)) {
      intake_.marks.cancel_sum(index);
      fail(DSC_ERR_INVALID_ARG, "%s: gradient %s", label(index).c_str(),
           is_null ? "is NULL" : "lies in the reducer's buckets");
    }
    has_sum = intake_.marks.has_sum(index);
    marking_.enter();
  }
  const MarkScope scope(marking_);
  intake_.add(index, [&] { storage().accumulate(slot(index), gradient, has_sum, stream); });
  const MutexLock lock(intake_.mutex);
  intake_.marks.end_sum(index);
}

void Reducer::mark_ready(size_t index, void* gradient, void* stream) {
  check_alive();
  check_index(index);
  if (gradient) sparse_.expect(index, false);
  std::optional<GradientIntake::Complete> complete;
  {
    const MutexLock lock(intake_.mutex);
    if (gradient == slot(index).view) gradient = nullptr;
    if (!gradient && sets_.is_replaced(index) && !intake_.marks.has_sum(index))
      fail(
          DSC_ERR_STATE,
          "%s: the view that was given is of buckets that were replaced since; ask for the view again before "
          "the gradient is written there",
          label(index).c_str());
    storage().check(slot(index).bytes > 0 ? gradient : nullptr, stream, label(index));
    if (intake_.marks.mark(set(), index, gradient, stream)) complete = intake_.complete(index);
    marking_.enter();
  }
  const MarkScope scope(marking_);
  if (!complete) return intake_.run(index, [&] { storage().follow(slot(index), stream); });
  intake_.take(index, gradient, stream, *complete);
}

// Rows of several marks are collected, so that the last one completes the gradient.
void Reducer::mark_sparse(size_t index, std::span<const int64_t> indices, const void* values) {
  check_alive();
  check_index(index);
  sparse_.expect(index, true);
  bool is_complete = false;
  {
    const MutexLock lock(intake_.mutex);
    is_complete = intake_.marks.mark(set(), index, nullptr, nullptr);
    marking_.enter();
  }
  const MarkScope scope(marking_);
  intake_.run(index, [&] { sparse_.add(index, indices, values); });
  if (!is_complete) return;
  const auto complete = [&] {  // only now, for rows that are refused take their mark back
    const MutexLock lock(intake_.mutex);
    return intake_.complete(index);
  }();
  intake_.take(index, nullptr, nullptr, complete);
}

void Reducer::mark_unused(size_t index) {
  check_alive();
  check_index(index);
  {
    const MutexLock lock(intake_.mutex);
    if (!intake_.marks.mark_unused(index)) return;
    marking_.enter();
  }
  const MarkScope scope(marking_);
  intake_.take_without_gradient(index);
}

// Starts all buckets that are complete, in order. If one cannot be started, the next call or finish() tries
// again. A mark that finds no bucket to start succeeds even if the group has failed meanwhile.
void Reducer::launch_ready(bool marking) {
  const auto before_each = [&] {
    if (marking || runner_.hook()) check_alive();  // a hook that has failed is not called again
  };
  capture([&] { runner_.launch(before_each); },
          [&](const Error& error) {
            // If the group fails between check_alive() and start(), check_alive() throws the full cause.
            if (error.code() == DSC_ERR_REVOKED) check_alive();
            if (group_->revoked()) reported_.store(true);
            throw Error(error);
          });
}

}  // namespace dsc
