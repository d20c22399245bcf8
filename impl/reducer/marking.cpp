// Marking of parameters during an iteration. The calling thread moves memory outside the lock.
#include "base/error.hpp"
#include "base/guard.hpp"
#include "dtype/dtype.hpp"
#include "reducer/reducer.hpp"

namespace dsc {
namespace {

// Counts a call that has passed its checks and may still move memory or start buckets; finish() waits for
// it.
class MarkScope {
 public:
  explicit MarkScope(std::atomic<int>& marking) noexcept : marking_(marking) {}
  ~MarkScope() { marking_.fetch_sub(1, std::memory_order_release); }
  MarkScope(const MarkScope&) = delete;
  MarkScope& operator=(const MarkScope&) = delete;

 private:
  std::atomic<int>& marking_;
};

bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) noexcept {
  const auto a_begin = reinterpret_cast<uintptr_t>(a);
  const auto b_begin = reinterpret_cast<uintptr_t>(b);
  return a_bytes > 0 && a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

}  // namespace

void Reducer::accumulate(size_t index, const void* gradient, void* stream) {
  check_alive();
  check_index(index);
  storage_->check(params_[index].slot.bytes > 0 ? gradient : nullptr, stream, labels_[index]);
  Param& param = params_[index];
  if (storage_->goes_on_alone() && !is_floating(param.slot.dtype))
    fail(DSC_ERR_UNSUPPORTED, "%s: gradients of %s cannot be accumulated on a device, only those of floats",
         labels_[index].c_str(), dtype_name(param.slot.dtype));
  const bool accumulated = [&] {
    const MutexLock lock(mutex_);
    expect_unmarked(index);
    if (!gradient && param.slot.bytes > 0) fail(DSC_ERR_INVALID_ARG, "gradient is NULL");
    if (overlap(gradient, param.slot.bytes, storage_->arena(), layout_.bytes))
      fail(DSC_ERR_INVALID_ARG, "%s: gradient lies in the reducer's buckets", labels_[index].c_str());
    param.mark = Mark::kAccumulating;
    marking_.fetch_add(1, std::memory_order_relaxed);
    return param.accumulated;
  }();
  const MarkScope scope(marking_);
  take(param, [&] { storage_->accumulate(param.slot, gradient, accumulated, stream); });
  const MutexLock lock(mutex_);
  param.accumulated = true;
  param.mark = Mark::kNone;
}

void Reducer::mark_ready(size_t index, void* gradient, void* stream) {
  check_alive();
  check_index(index);
  Param& param = params_[index];
  if (gradient == param.slot.view) gradient = nullptr;
  storage_->check(params_[index].slot.bytes > 0 ? gradient : nullptr, stream, labels_[index]);
  {
    const MutexLock lock(mutex_);
    expect_unmarked(index);
    if (gradient) check_overlap(param, index, gradient);
    param.mark = Mark::kReady;
    param.result = gradient;
    marking_.fetch_add(1, std::memory_order_relaxed);
  }
  const MarkScope scope(marking_);
  take(param, [&] { storage_->take(param.slot, gradient, param.accumulated, stream); });
  become_ready(param);
}

void Reducer::mark_unused(size_t index) {
  check_alive();
  check_index(index);
  Param& param = params_[index];
  {
    const MutexLock lock(mutex_);
    expect_unmarked(index);
    if (param.accumulated) {
      fail(DSC_ERR_STATE,
           "%s has an accumulated gradient, so it is not unused; mark it ready with gradient NULL",
           labels_[index].c_str());
    }
    param.mark = Mark::kReady;
    marking_.fetch_add(1, std::memory_order_relaxed);
  }
  const MarkScope scope(marking_);
  take(param, [&] { storage_->take_zeros(param.slot); });
  become_ready(param);
}

// Runs a step that takes a gradient. If it throws, the parameter's mark is removed.
template <typename Step>
void Reducer::take(Param& param, const Step& step) {
  capture(step, [&](const Error& error) {
    const MutexLock lock(mutex_);
    param.mark = Mark::kNone;
    param.result = nullptr;
    throw Error(error);
  });
}

void Reducer::require_open() const {
  if (phase_ == Phase::kIdle) fail(DSC_ERR_STATE, "no iteration runs, call begin first");
  if (phase_ == Phase::kFinishing) fail(DSC_ERR_STATE, "finish is running in another thread");
}

void Reducer::expect_unmarked(size_t index) const {
  require_open();
  const Param& param = params_[index];
  if (param.mark == Mark::kReady) {
    fail(DSC_ERR_STATE,
         "expected to mark a variable ready only once; %s has been marked as ready twice in this iteration",
         labels_[index].c_str());
  }
  if (param.mark == Mark::kAccumulating)
    fail(DSC_ERR_STATE, "%s is being accumulated by another thread", labels_[index].c_str());
}

void Reducer::check_overlap(const Param& param, size_t index, const void* gradient) {
  if (overlap(gradient, param.slot.bytes, storage_->arena(), layout_.bytes)) {
    fail(DSC_ERR_INVALID_ARG,
         "%s: gradient lies in the reducer's buckets, but not at the parameter's own view",
         labels_[index].c_str());
  }
  if (const auto other = ranges_.add(index, gradient, param.slot.bytes)) {
    fail(DSC_ERR_INVALID_ARG, "%s: gradient overlaps the gradient of %s", labels_[index].c_str(),
         labels_[*other].c_str());
  }
}

void Reducer::become_ready(const Param& param) {
  // acq_rel: the thread that completes a bucket sees in launch_ready() what the other threads have written.
  if (buckets_[param.slot.bucket].pending.fetch_sub(1, std::memory_order_acq_rel) == 1) launch_ready(true);
}

// Starts all buckets that are complete, in order. If one cannot be started, the next call or finish() tries
// again. A mark that finds no bucket to start succeeds even if the group has failed meanwhile.
void Reducer::launch_ready(bool marking) {
  const MutexLock lock(launch_mutex_);
  while (launched_ < buckets_.size() && buckets_[launched_].pending.load(std::memory_order_acquire) == 0) {
    if (marking) check_alive();
    Bucket& bucket = buckets_[launched_];
    const size_t number = launched_;
    launching_.store(true);
    capture([&] { bucket.work = storage_->start(number, bucket.call); },
            [&](const Error& error) {
              launching_.store(false);
              // If the group fails between check_alive() and start(), check_alive() throws the full cause.
              if (error.code() == DSC_ERR_REVOKED) check_alive();
              if (group_->revoked()) reported_.store(true);
              throw Error(error);
            });
    launching_.store(false);
    ++launched_;
  }
}

}  // namespace dsc
