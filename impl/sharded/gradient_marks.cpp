// Marking of gradients during an iteration. The calling thread moves memory outside the lock.
#include <algorithm>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "dtype/dtype.hpp"
#include "sharded/gradient_shards.hpp"

namespace dsc {
namespace {

constexpr int kPoolWaitMs = 20;

// Counts a call that has passed its checks and may still move memory or start reductions; finish() waits for
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

[[noreturn]] void fail_dtype(const std::string& who, int32_t dtype, int32_t own, int32_t of_param) {
  const std::string other =
      own == of_param ? "" : std::string(", or the parameter's ") + dtype_name(of_param);
  fail(DSC_ERR_INVALID_ARG, "%s: the gradient is of %s (dtype %d), expected %s%s", who.c_str(),
       dtype_name(dtype), dtype, dtype_name(own), other.c_str());
}

}  // namespace

void GradientShards::accumulate(size_t index, const void* gradient, int32_t dtype, void* stream) {
  memory_.check_stream(stream);
  check_mark(index, gradient);
  if (!gradient && params_[index].count > 0) fail(DSC_ERR_INVALID_ARG, "gradient is NULL");
  const int32_t type = type_of(index, gradient, dtype);
  const bool adds = start_mark(index, Mark::kAccumulating);
  const MarkScope scope(marking_);
  take(index, Mark::kNone, [&] { put(index, gradient, type, adds, stream); });
  end_mark(index, Mark::kNone, true);
}

void GradientShards::mark_ready(size_t index, const void* gradient, int32_t dtype, void* stream) {
  memory_.check_stream(stream);
  if (index < params_.size() && gradient == params_[index].view) gradient = nullptr;
  check_mark(index, gradient);
  const int32_t type = type_of(index, gradient, dtype);
  const bool adds = start_mark(index, Mark::kReady);
  const MarkScope scope(marking_);
  take(index, Mark::kNone, [&] {
    if (gradient) return put(index, gradient, type, adds, stream);
    memory_.follow(stream);
    if (!adds) zero_unviewed(index);
  });
  become_ready(index);
}

// A gradient that is said to stand in its view is zero if nobody has asked for the view.
void GradientShards::zero_unviewed(size_t index) {
  const Param& param = params_[index];
  const MutexLock lock(launch_mutex_);
  if (!units_[param.unit].viewed && memory_.units().is_dirty(param.unit))
    memory_.zero(place_of(param), param.bytes);
}

void GradientShards::mark_unused(size_t index) {
  check_mark(index, nullptr);
  const Param& param = params_[index];
  if (start_mark(index, Mark::kReady)) {
    end_mark(index, Mark::kNone, true);
    const MarkScope scope(marking_);
    fail(DSC_ERR_STATE,
         "%s has an accumulated gradient, so it is not unused; mark it ready with gradient NULL",
         labels_[index].c_str());
  }
  const MarkScope scope(marking_);
  take(index, Mark::kNone, [&] { memory_.zero(place_of(param), param.bytes); });
  become_ready(index);
}

void GradientShards::check_mark(size_t index, const void* gradient) const {
  groups_.check_alive();
  if (index >= params_.size())
    fail(DSC_ERR_INVALID_ARG, "out of range parameter index %zu, expected 0 to %zu", index,
         params_.size() - 1);
  memory_.check_gradient(gradient, labels_[index]);
}

void GradientShards::require_open() const {
  if (phase_ == Phase::kIdle) fail(DSC_ERR_STATE, "no iteration runs, call begin first");
  if (phase_ == Phase::kFinishing) fail(DSC_ERR_STATE, "finish is running in another thread");
}

void GradientShards::expect_unmarked(size_t index) const {
  require_open();
  const Param& param = params_[index];
  if (param.mark == Mark::kReady)
    fail(DSC_ERR_STATE,
         "expected to mark a variable ready only once; %s has been marked as ready twice in this iteration",
         labels_[index].c_str());
  if (param.mark == Mark::kAccumulating)
    fail(DSC_ERR_STATE, "%s is being accumulated by another thread", labels_[index].c_str());
}

// Returns true if the view holds a sum already.
bool GradientShards::start_mark(size_t index, Mark mark) {
  const MutexLock lock(mutex_);
  expect_unmarked(index);
  params_[index].mark = mark;
  marking_.fetch_add(1, std::memory_order_relaxed);
  return params_[index].accumulated;
}

void GradientShards::end_mark(size_t index, Mark mark, bool accumulated) {
  const MutexLock lock(mutex_);
  params_[index].mark = mark;
  params_[index].accumulated = accumulated;
}

int32_t GradientShards::type_of(size_t index, const void* gradient, int32_t dtype) const {
  const Param& param = params_[index];
  if (!gradient || dtype == 0 || dtype == param.dtype) return param.dtype;
  if (dtype != param.param_dtype) fail_dtype(labels_[index], dtype, param.dtype, param.param_dtype);
  return dtype;
}

// Copies or adds a gradient behind what is on the caller's stream now, and before what comes there later, so
// that its memory may be used again in the order of that stream.
void GradientShards::put(size_t index, const void* gradient, int32_t dtype, bool adds, void* stream) {
  const Param& param = params_[index];
  memory_.follow(stream);
  memory_.put({place_of(param), param.dtype, gradient, dtype, param.count}, adds);
  memory_.lead(stream);
}

// Runs a step that takes a gradient. If it throws, the parameter's mark becomes `mark` again.
template <typename Step>
void GradientShards::take(size_t index, Mark mark, const Step& step) {
  capture(
      [&] {
        hold(params_[index].unit);
        step();
      },
      [&](const Error& error) {
        const MutexLock lock(mutex_);
        params_[index].mark = mark;
        throw Error(error);
      });
}

// Gives a unit memory for its full gradients. Where that would take more than is allowed, reductions that
// were launched before end first. Where it would only take more than the pool, they get a little time: ranks
// that are ahead would wait for the others in finish() anyway, but a mark must not wait for a rank that waits
// for this one elsewhere.
void GradientShards::hold(size_t number) {
  if (options_.keeps_full) return;
  const MutexLock lock(launch_mutex_);
  Unit& unit = units_[number];
  if (unit.live) return;
  const bool may_pool = !unit.viewed;
  const auto growth = [&] { return may_pool ? memory_.units().growth(number) : full_places_.units[number].bytes; };
  advance(0);
  const Deadline deadline = Deadline::after_ms(kPoolWaitMs);
  while (may_pool && growth() > 0 && collected_ < launched_ && !deadline.passed()) wait_for_oldest(deadline);
  while (options_.max_live_bytes > 0 && memory_.units().held() + growth() > options_.max_live_bytes &&
         collected_ < launched_)
    advance(collected_ + 1);
  memory_.units().open(number, may_pool);
  if (memory_.units().is_dirty(number))
    for (const auto& [begin, bytes] : unit.gaps) memory_.zero(memory_.units().buffer(number) + begin, bytes);
  unit.live = true;
  peak_full_ = std::max(peak_full_, memory_.units().held());
}

void GradientShards::become_ready(size_t index) {
  // acq_rel: the thread that completes a unit sees in launch_ready() what the other threads have written.
  if (units_[params_[index].unit].pending.fetch_sub(1, std::memory_order_acq_rel) == 1) launch_ready();
}

// Starts the reductions of all units that are complete, in order. A mark that finds no unit to start succeeds
// even if the groups have failed meanwhile.
void GradientShards::launch_ready() {
  const MutexLock lock(launch_mutex_);
  while (launched_ < units_.size() &&
         units_[unit_at(launched_)].pending.load(std::memory_order_acquire) == 0) {
    groups_.check_alive();
    launch(unit_at(launched_));
    ++launched_;
  }
  advance(0);
}

}  // namespace dsc
