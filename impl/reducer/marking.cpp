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
  expect_sparse(index, false);
  Param& param = states_[index];
  {
    const MutexLock lock(mutex_);
    const GradientSlot& slot = this->slot(index);
    storage().check(slot.bytes > 0 ? gradient : nullptr, stream, label(index));
    if (is_on_device() && !is_floating(slot.dtype))
      fail(DSC_ERR_UNSUPPORTED, "%s: gradients of %s cannot be accumulated on a device, only those of floats",
           label(index).c_str(), dtype_name(slot.dtype));
    expect_unmarked(index);
    if (!gradient && slot.bytes > 0) fail(DSC_ERR_INVALID_ARG, "gradient is NULL");
    if (overlap(gradient, slot.gradient_bytes(), storage().arena(), set_->layout.bytes))
      fail(DSC_ERR_INVALID_ARG, "%s: gradient lies in the reducer's buckets", label(index).c_str());
    param.mark = Mark::kAccumulating;
    marking_.fetch_add(1, std::memory_order_relaxed);
  }
  const MarkScope scope(marking_);
  take(index, [&] { storage().accumulate(slot(index), gradient, param.accumulated, stream); });
  const MutexLock lock(mutex_);
  param.accumulated = true;
  param.mark = Mark::kNone;
}

void Reducer::mark_ready(size_t index, void* gradient, void* stream) {
  check_alive();
  check_index(index);
  if (gradient) expect_sparse(index, false);
  Param& param = states_[index];
  {
    const MutexLock lock(mutex_);
    if (gradient == slot(index).view) gradient = nullptr;
    storage().check(slot(index).bytes > 0 ? gradient : nullptr, stream, label(index));
    if (!note_mark(index, gradient, stream)) return;
    param.mark = Mark::kReady;
    marking_.fetch_add(1, std::memory_order_relaxed);
  }
  const MarkScope scope(marking_);
  mark_frozen_unused();
  collect(index, gradient, stream);
  become_ready(index, true);
}

// Rows of several marks are collected, so that the last one completes the gradient.
void Reducer::mark_sparse(size_t index, std::span<const int64_t> indices, const void* values) {
  check_alive();
  check_index(index);
  expect_sparse(index, true);
  bool is_complete = false;
  {
    const MutexLock lock(mutex_);
    is_complete = note_mark(index, nullptr, nullptr);
    if (is_complete) states_[index].mark = Mark::kReady;
    marking_.fetch_add(1, std::memory_order_relaxed);
  }
  const MarkScope scope(marking_);
  take(index, [&] { sparse_.add(index, indices, values); });
  if (!is_complete) return;
  mark_frozen_unused();
  collect(index, nullptr, nullptr);
  become_ready(index, true);
}

void Reducer::expect_sparse(size_t index, bool sparse) const {
  if (sparse_.has(index) == sparse) return;
  fail(DSC_ERR_INVALID_ARG, sparse ? "%s has no sparse gradients: expect_sparse was 0 at creation"
                                   : "%s has sparse gradients, expected dsc_bucket_reducer_mark_sparse()",
       label(index).c_str());
}

void Reducer::mark_unused(size_t index) {
  check_alive();
  check_index(index);
  {
    const MutexLock lock(mutex_);
    require_open();
    if (options_.static_graph == 1 && !usage_.is_counting()) {
      if (usage_.is_frozen_unused(index)) return;
      fail_changed(index, "is unused");
    }
    expect_unmarked(index);
    expect_no_sum(index);
    states_[index].mark = Mark::kReady;
    if (is_deferred()) return;
    marking_.fetch_add(1, std::memory_order_relaxed);
  }
  const MarkScope scope(marking_);
  mark_without_gradient(index);
}

// Checks and notes a mark. Returns true if the parameter's gradient is to be taken now.
bool Reducer::note_mark(size_t index, void* gradient, void* stream) {
  require_open();
  Param& param = states_[index];
  if (usage_.is_frozen_unused(index)) fail_changed(index, "has a gradient");
  expect_unmarked(index);
  expect_gradient(index, gradient);
  param.gradient = gradient;
  param.stream = stream;
  return usage_.count_mark(index) && !is_deferred();
}

// A parameter that is used several times is marked several times, always with the same memory.
void Reducer::expect_gradient(size_t index, void* gradient) {
  if (usage_.marks(index) > 0) {
    if (gradient == states_[index].gradient) return;
    fail(DSC_ERR_INVALID_ARG, "%s: gradient is not that of its marks before, expected the same memory at every mark "
         "of an iteration", label(index).c_str());
  }
  if (!gradient) return;
  const size_t bytes = slot(index).gradient_bytes();
  if (overlap(gradient, bytes, storage().arena(), set_->layout.bytes))
    fail(DSC_ERR_INVALID_ARG, "%s: gradient lies in the reducer's buckets, but not at the parameter's own view",
         label(index).c_str());
  if (const auto other = ranges_.add(index, gradient, bytes))
    fail(DSC_ERR_INVALID_ARG, "%s: gradient overlaps the gradient of %s", label(index).c_str(),
         label(*other).c_str());
}

// What was collected without communication counts as a gradient.
void Reducer::expect_no_sum(size_t index) const {
  if (!states_[index].accumulated || carries_) return;
  fail(DSC_ERR_STATE, "%s has an accumulated gradient, so it is not unused; mark it ready with gradient NULL",
       label(index).c_str());
}

void Reducer::fail_changed(size_t index, const char* what) const {
  fail(DSC_ERR_STATE,
       "the graph has changed, which is not compatible with static_graph: %s %s, expected %u marks as in the first "
       "iteration",
       label(index).c_str(), what, usage_.expected_marks(index));
}

// Runs a step that takes a gradient. If it throws, the parameter's mark is removed.
template <typename Step>
void Reducer::take(size_t index, const Step& step) {
  capture(step, [&](const Error& error) {
    const MutexLock lock(mutex_);
    Param& param = states_[index];
    if (param.mark == Mark::kReady && usage_.marks(index) > 0) usage_.take_back(index);
    param.mark = Mark::kNone;
    param.gradient = nullptr;
    throw Error(error);
  });
}

// Takes a complete gradient: into its bucket, or in an iteration that is not reduced to what was collected.
void Reducer::collect(size_t index, const void* gradient, void* stream) {
  Param& param = states_[index];
  if (!is_local()) {
    take(index, [&] { storage().take(slot(index), gradient, param.accumulated, stream); });
    return;
  }
  if (gradient) take(index, [&] { storage().accumulate(slot(index), gradient, param.accumulated, stream); });
  const MutexLock lock(mutex_);
  param.accumulated = true;
  param.gradient = nullptr;
}

void Reducer::mark_without_gradient(size_t index) {
  Param& param = states_[index];
  if (is_local()) return;
  const bool used = param.accumulated;
  take(index, [&] {
    if (used) {
      storage().take(slot(index), nullptr, true, nullptr);
    } else {
      storage().take_zeros(slot(index));
    }
  });
  become_ready(index, used);
}

// Parameters that the first iteration of a static graph did not use are ready as soon as the first gradient
// is there.
void Reducer::mark_frozen_unused() {
  std::vector<size_t> indices;
  {
    const MutexLock lock(mutex_);
    if (options_.static_graph == 0 || usage_.is_counting() || local_ || frozen_marked_) return;
    frozen_marked_ = true;
    for (size_t i = 0; i < params_.size(); ++i) {
      if (!usage_.is_frozen_unused(i)) continue;
      states_[i].mark = Mark::kReady;
      indices.push_back(i);
    }
  }
  for (const size_t i : indices) mark_without_gradient(i);
}

void Reducer::require_open() const {
  if (phase_ == Phase::kIdle) fail(DSC_ERR_STATE, "no iteration runs, call begin first");
  if (phase_ == Phase::kFinishing) fail(DSC_ERR_STATE, "finish is running in another thread");
}

void Reducer::expect_unmarked(size_t index) const {
  require_open();
  const Param& param = states_[index];
  if (param.mark == Mark::kReady) {
    fail(DSC_ERR_STATE,
         "expected to mark a variable ready only once; %s has been marked as ready twice in this iteration",
         label(index).c_str());
  }
  if (param.mark == Mark::kAccumulating)
    fail(DSC_ERR_STATE, "%s is being accumulated by another thread", label(index).c_str());
}

void Reducer::become_ready(size_t index, bool used) {
  if (is_local()) return;
  {
    const MutexLock lock(mutex_);
    usage_.note_ready(index, used);
  }
  runner_.timeline.ready(index);
  if (runner_.count_ready(slot(index).bucket)) launch_ready(true);
}

// Starts all buckets that are complete, in order. If one cannot be started, the next call or finish() tries
// again. A mark that finds no bucket to start succeeds even if the group has failed meanwhile.
void Reducer::launch_ready(bool marking) {
  const auto before_each = [&] {
    if (marking) check_alive();
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
