#include "sharded/gradient_shards.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "dtype/dtype.hpp"
#include "sharded/unit_label.hpp"

namespace dsc {
namespace {

constexpr int kReductionWaitMs = 2000;

[[noreturn]] void fail_no_view() {
  fail(DSC_ERR_UNSUPPORTED,
       "in stages 2 and 3, full gradients in device memory have no lasting address; expected the gradient in "
       "the call that marks it");
}

void expect_no_check(const NonFiniteLedger& ledger) {
  if (ledger.check() != NonFiniteCheck::kOff)
    fail(DSC_ERR_UNSUPPORTED,
         "sharded gradients on a device are not checked for NaNs and infinities, expected the check to be "
         "off; the norm from clip shows them");
}

// Parts of a unit: offset from its start and length, in bytes.
using Parts = std::vector<std::pair<size_t, size_t>>;

// Returns the parts of a unit that no gradient covers.
Parts gaps_between(Parts covered, size_t unit_bytes) {
  covered.emplace_back(unit_bytes, 0);
  std::ranges::sort(covered);
  Parts gaps;
  size_t end = 0;
  for (const auto& [begin, bytes] : covered) {
    if (begin > end) gaps.emplace_back(end, begin - end);
    end = begin + bytes;
  }
  return gaps;
}

// The pool must hold two units, because one is filled while another one is reduced.
UnitOptions unit_options(const FlatOffsets& full, const GradientOptions& options) {
  size_t pool_bytes = window_bytes(full, 2);
  if (options.max_live_bytes > 0) pool_bytes = std::min(pool_bytes, options.max_live_bytes);
  return {options.keeps_full, pool_bytes};
}

}  // namespace

GradientShards::GradientShards(ShardGroups& groups, const ShardLayout& layout, std::span<const Tensor> params,
                               std::span<const int32_t> dtypes, const GradientOptions& options)
    : groups_(groups),
      options_(options),
      list_(params, options.grad_dtype),
      full_offsets_(
          bucket_offsets(layout, dtypes, 1, UnitMemory::alignment(options.on_device, options.keeps_full))),
      shard_offsets_(bucket_offsets(layout, dtypes, layout.shards, 1)),
      memory_(options.on_device ? groups.shards() : groups.all(), options.on_device, full_offsets_,
              shard_offsets_.bytes, unit_options(full_offsets_, options)),
      intake_(list_, false),
      params_(params.size()),
      units_(layout.units.size()),
      reductions_(groups, layout, full_offsets_, shard_offsets_, memory_,
                  {options.average, {dtypes.begin(), dtypes.end()}, unit_labels(layout, params)}),
      peak_full_(memory_.units().held()) {
  prepare_params(params, layout);
}

GradientShards::~GradientShards() {
  if (wait_idle(Deadline::after_ms(kReductionWaitMs))) return;
  log(DSC_LOG_LEVEL_WARN, "%s: %zu bytes of gradients are kept: reductions did not end within %d ms",
      groups_.all().name().c_str(), full_offsets_.bytes, kReductionWaitMs);
  memory_.keep();
}

void GradientShards::prepare_params(std::span<const Tensor> params, const ShardLayout& layout) {
  std::vector<Parts> covered(units_.size());
  for (size_t i = 0; i < params.size(); ++i) {
    const auto [bucket, start] = layout.locations[i];
    Param& param = params_[i];
    param.count = params[i].count;
    param.bytes = param.count * dtype_bytes(dtype_of(i));
    const size_t offset = full_offsets_.buckets[bucket] + start * dtype_bytes(dtype_of(i));
    param.unit = layout.buckets[bucket].unit;
    if (memory_.units().views()) param.view = memory_.units().views() + offset;
    param.offset = offset - full_offsets_.units[param.unit].offset;
    ++units_[param.unit].params;
    covered[param.unit].emplace_back(param.offset, param.bytes);
  }
  for (size_t u = 0; u < units_.size(); ++u)
    units_[u].gaps = gaps_between(std::move(covered[u]), full_offsets_.units[u].bytes);
}

// Returns the view of a gradient, to which the caller may write from now on. A unit that already has memory
// from the pool may contain any values, so untouched gradients are set to zero.
void* GradientShards::view(size_t index) {
  const Param& param = params_[index];
  if (!param.view) fail_no_view();
  const MutexLock lock(launch_mutex_);
  Unit& unit = units_[param.unit];
  if (!unit.viewed && memory_.units().is_dirty(param.unit)) {
    const MutexLock marks(intake_.mutex);
    for (size_t i = 0; i < params_.size(); ++i)
      if (params_[i].unit == param.unit && intake_.marks().is_untouched(i))
        memory_.zero(storage_of(params_[i]), params_[i].bytes);
  }
  unit.viewed = true;
  return param.view;
}

HeldBytes GradientShards::held() const {
  const MutexLock lock(launch_mutex_);
  return {shard_offsets_.bytes, memory_.units().held(), peak_full_};
}

bool GradientShards::has_sums() const {
  const MutexLock lock(intake_.mutex);
  return has_sums_;
}

bool GradientShards::is_running() const noexcept {
  if (reductions_.is_blocked() || intake_.is_finishing()) return true;
  const MutexLock lock(launch_mutex_);
  return reductions_.has_pending();
}

bool GradientShards::wait_idle(Deadline deadline) noexcept {
  const MutexLock lock(launch_mutex_);
  return reductions_.wait_idle(deadline);
}

void GradientShards::begin(bool adds, uint64_t step_tag, void* stream) {
  memory_.check_stream(stream);
  const MutexLock lock(intake_.mutex);
  intake_.marks().expect_finished(groups_.all().rank());
  if (adds && !has_sums_)
    fail(DSC_ERR_STATE, "accumulate is 1, but no finished iteration has left gradients to add to");
  if (memory_.in_stream_order()) expect_no_check(*groups_.all().nonfinite());
  // The optimizer has read the shards on this stream, and the program will write to views later on it.
  memory_.follow(stream);
  memory_.lead(stream);
  reductions_.begin(adds, step_tag);
  has_sums_ = false;
  for (Unit& unit : units_) unit.pending.store(unit.params, std::memory_order_relaxed);
  intake_.begin(false);
}

}  // namespace dsc
