// Functions that mark parameters during an iteration. The calling thread copies gradients without holding the
// lock.
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
    const MutexLock lock(gradients_.mutex);
    const GradientSlot& slot = this->slot(index);
    storage().check(slot.bytes > 0 ? gradient : nullptr, stream, label(index));
    if (is_on_device() && !is_floating(slot.dtype))
      fail(DSC_ERR_UNSUPPORTED, "%s: gradients of %s cannot be accumulated on a device, only those of floats",
           label(index).c_str(), dtype_name(slot.dtype));
    has_sum = gradients_.accept_sum(index, gradient, slot.gradient_bytes());
  }
  const MarkScope scope = gradients_.scope();
  gradients_.add(index, [&] { storage().accumulate(slot(index), gradient, has_sum, stream); });
}

void Reducer::mark_ready(size_t index, void* gradient, void* stream) {
  check_alive();
  check_index(index);
  if (gradient) sparse_.expect(index, false);
  std::optional<GradientIntake::Complete> complete;
  {
    const MutexLock lock(gradients_.mutex);
    const GradientSlot& slot = this->slot(index);
    if (gradient == slot.view) gradient = nullptr;
    if (!gradient && sets_.is_replaced(index) && !gradients_.marks().has_sum(index))
      fail(DSC_ERR_STATE,
           "%s: the buckets of its view were replaced; expected a new call for the view before its gradient "
           "is written",
           label(index).c_str());
    storage().check(slot.bytes > 0 ? gradient : nullptr, stream, label(index));
    if (gradients_.accept(index, {gradient, slot.gradient_bytes(), stream}))
      complete = gradients_.complete(index);
  }
  const MarkScope scope = gradients_.scope();
  if (!complete) return gradients_.run(index, [&] { storage().follow(slot(index), stream); });
  intake_.take(index, gradient, stream, *complete);
}

// A parameter that is used several times is marked several times. Its rows are collected, and the last mark
// completes the gradient.
void Reducer::mark_sparse(size_t index, std::span<const int64_t> indices, const void* values) {
  check_alive();
  check_index(index);
  sparse_.expect(index, true);
  bool is_complete = false;
  {
    const MutexLock lock(gradients_.mutex);
    is_complete = gradients_.accept(index, {});
  }
  const MarkScope scope = gradients_.scope();
  gradients_.run(index, [&] { sparse_.add(index, indices, values); });
  if (!is_complete) return;
  // Complete the gradient only after its rows were accepted, because a mark with invalid rows is undone.
  const auto complete = [&] {
    const MutexLock lock(gradients_.mutex);
    return gradients_.complete(index);
  }();
  intake_.take(index, nullptr, nullptr, complete);
}

void Reducer::mark_unused(size_t index) {
  check_alive();
  check_index(index);
  {
    const MutexLock lock(gradients_.mutex);
    if (!gradients_.accept_unused(index)) return;
  }
  const MarkScope scope = gradients_.scope();
  intake_.take_without_gradient(index);
}

// Starts all complete buckets in order. If a bucket cannot be started, the next call or finish() tries again.
// A mark that completes no bucket succeeds even if the group has failed in the meantime.
void Reducer::launch_ready(bool marking) {
  const auto before_each = [&] {
    if (marking || runner_.hook()) check_alive();  // a hook that has failed is not called again
  };
  capture([&] { runner_.launch(before_each); },
          [&](const Error& error) {
            // If the group fails between check_alive() and start(), check_alive() throws the complete cause.
            if (error.code() == DSC_ERR_REVOKED) check_alive();
            if (group_->revoked()) reported_.store(true);
            throw Error(error);
          });
}

}  // namespace dsc
