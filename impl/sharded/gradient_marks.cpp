// Functions that mark gradients during an iteration. The calling thread copies gradients without holding the
// lock.
#include <algorithm>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "dtype/dtype.hpp"
#include "sharded/gradient_shards.hpp"

namespace dsc {
namespace {

constexpr int kPoolWaitMs = 20;

[[noreturn]] void fail_dtype(const std::string& who, int32_t dtype, int32_t own, int32_t of_param) {
  const std::string other =
      own == of_param ? "" : std::string(", or the parameter's type ") + dtype_name(of_param);
  fail(DSC_ERR_INVALID_ARG, "%s: the gradient has type %s (dtype %d), expected %s%s", who.c_str(),
       dtype_name(dtype), dtype, dtype_name(own), other.c_str());
}

}  // namespace

void GradientShards::accumulate(size_t index, const void* gradient, int32_t dtype, void* stream) {
  memory_.check_stream(stream);
  check_mark(index, gradient);
  const int32_t type = type_of(index, gradient, dtype);
  bool adds = false;
  {
    const MutexLock lock(intake_.mutex);
    adds = intake_.accept_sum(index, gradient, params_[index].count * dtype_bytes(type));
  }
  const MarkScope scope = intake_.scope();
  intake_.add(index, [&] {
    hold(params_[index].unit);
    put(index, gradient, type, adds, stream);
  });
}

void GradientShards::mark_ready(size_t index, const void* gradient, int32_t dtype, void* stream) {
  memory_.check_stream(stream);
  if (index < params_.size() && gradient == params_[index].view) gradient = nullptr;
  check_mark(index, gradient);
  const int32_t type = type_of(index, gradient, dtype);
  bool adds = false;
  {
    const MutexLock lock(intake_.mutex);
    intake_.accept(index, {});
    adds = intake_.marks().has_sum(index);
  }
  const MarkScope scope = intake_.scope();
  intake_.run(index, [&] {
    hold(params_[index].unit);
    if (gradient) return put(index, gradient, type, adds, stream);
    memory_.follow(stream);
    if (!adds) zero_unviewed(index);
  });
  become_ready(index);
}

// Handles a gradient that the caller marks as already in its view, although the view was never requested.
// Such a gradient is zero.
void GradientShards::zero_unviewed(size_t index) {
  const Param& param = params_[index];
  const MutexLock lock(launch_mutex_);
  if (!units_[param.unit].viewed && memory_.units().is_dirty(param.unit))
    memory_.zero(storage_of(param), param.bytes);
}

void GradientShards::mark_unused(size_t index) {
  check_mark(index, nullptr);
  {
    const MutexLock lock(intake_.mutex);
    intake_.accept_unused(index);
  }
  const MarkScope scope = intake_.scope();
  const Param& param = params_[index];
  intake_.run(index, [&] {
    hold(param.unit);
    memory_.zero(storage_of(param), param.bytes);
  });
  become_ready(index);
}

void GradientShards::check_mark(size_t index, const void* gradient) const {
  groups_.check_alive();
  if (index >= params_.size())
    fail(DSC_ERR_INVALID_ARG, "index is %zu, expected 0 to %zu, the index of a parameter", index,
         params_.size() - 1);
  memory_.check_gradient(gradient, list_.labels[index]);
}

int32_t GradientShards::type_of(size_t index, const void* gradient, int32_t dtype) const {
  const int32_t own = dtype_of(index), of_param = list_.gradient_dtypes[index];
  if (!gradient || dtype == 0 || dtype == own) return own;
  if (dtype != of_param) fail_dtype(list_.labels[index], dtype, own, of_param);
  return dtype;
}

// Copies or adds a gradient. This is ordered after the work that is now on the caller's stream, and before
// later work there. The caller may therefore reuse the gradient's memory in stream order.
void GradientShards::put(size_t index, const void* gradient, int32_t dtype, bool adds, void* stream) {
  const Param& param = params_[index];
  memory_.follow(stream);
  memory_.put({storage_of(param), dtype_of(index), gradient, dtype, param.count}, adds);
  memory_.lead(stream);
}

// Gives a unit memory for its full gradients. If the pool has no room, first waits until launched reductions
// free some, but at most kPoolWaitMs, because another rank may wait elsewhere for this rank. After that, the
// unit gets separate memory. If this would exceed max_live_bytes, waits until the unit fits or all launched
// reductions have ended.
void GradientShards::hold(size_t number) {
  if (options_.keeps_full) return;
  const MutexLock lock(launch_mutex_);
  UnitMemory& memory = memory_.units();
  if (memory.is_open(number)) return;
  const Unit& unit = units_[number];
  const bool may_pool = !unit.viewed;
  const auto growth = [&] { return may_pool ? memory.growth(number) : full_offsets_.units[number].bytes; };
  reductions_.advance(0);
  const Deadline deadline = Deadline::after_ms(kPoolWaitMs);
  while (may_pool && growth() > 0 && reductions_.has_pending() && !deadline.passed())
    reductions_.wait_for_oldest(deadline);
  while (options_.max_live_bytes > 0 && memory.held() + growth() > options_.max_live_bytes &&
         reductions_.has_pending())
    reductions_.wait_for_oldest();
  memory.open(number, may_pool);
  if (memory.is_dirty(number))
    for (const auto& [begin, bytes] : unit.gaps) memory_.zero(memory.buffer(number) + begin, bytes);
  peak_full_ = std::max(peak_full_, memory.held());
}

void GradientShards::become_ready(size_t index) {
  // Use acq_rel, so that the thread that completes a unit sees in launch_ready() what other threads have
  // written.
  if (units_[params_[index].unit].pending.fetch_sub(1, std::memory_order_acq_rel) == 1) launch_ready();
}

// Starts the reductions of all complete units in order. A mark that completes no unit succeeds even if a
// group has failed in the meantime.
void GradientShards::launch_ready() {
  const MutexLock lock(launch_mutex_);
  for (auto unit = reductions_.next(); unit && units_[*unit].pending.load(std::memory_order_acquire) == 0;
       unit = reductions_.next()) {
    groups_.check_alive();
    reductions_.launch_next();
  }
  reductions_.advance(0);
}

}  // namespace dsc
