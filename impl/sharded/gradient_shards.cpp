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

// Counts a thread that may wait for other ranks while it holds the lock, so that closing does not wait for
// it.
class BlockedScope {
 public:
  explicit BlockedScope(std::atomic<int>& blocked) noexcept : blocked_(blocked) { blocked_.fetch_add(1); }
  ~BlockedScope() { blocked_.fetch_sub(1); }
  BlockedScope(const BlockedScope&) = delete;
  BlockedScope& operator=(const BlockedScope&) = delete;

 private:
  std::atomic<int>& blocked_;
};

[[noreturn]] void fail_no_view() {
  fail(DSC_ERR_UNSUPPORTED,
       "full gradients in memory of a device have no address that lasts in stages 2 and 3; expected the "
       "gradient in the call that marks it");
}

void expect_no_check(const NonFiniteLedger& ledger) {
  if (ledger.check() != NonFiniteCheck::kOff)
    fail(DSC_ERR_UNSUPPORTED,
         "sharded gradients on a device are not checked for NaNs and infinities, expected the check to be "
         "off; "
         "the norm that clip gives shows them");
}

using Parts = std::vector<std::pair<size_t, size_t>>;  // of a unit: bytes from its start, and length

// Returns what no gradient covers.
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

// One unit is filled while another one is reduced.
UnitOptions unit_options(const FlatOffsets& full, const GradientOptions& options) {
  size_t pool_bytes = window_bytes(full, 2);
  if (options.max_live_bytes > 0) pool_bytes = std::min(pool_bytes, options.max_live_bytes);
  return {options.keeps_full, pool_bytes};
}

void write_note(Call& call, const std::string& unit, uint64_t step_tag) {
  std::snprintf(call.note, sizeof call.note, "%s, step %llu%s", clipped(unit, 16).c_str(),
                static_cast<unsigned long long>(step_tag / 2), step_tag % 2 == 0 ? " unchanged" : "");
}

// The engine of a device cannot scale all types, nor anything in a group of one rank.
void scale_here_if_needed(ShardMemory& memory, Comm& group, Call& call, size_t count) {
  if (!memory.in_stream_order() || call.prescale == 1 || !group.unsupported_reason(call)) return;
  auto* const full = static_cast<std::byte*>(const_cast<void*>(call.send));
  memory.scale({full, count, call.dtype}, std::exchange(call.prescale, 1));
}

}  // namespace

GradientShards::GradientShards(ShardGroups& groups, const ShardLayout& layout, std::span<const Tensor> params,
                               std::span<const int32_t> dtypes, const GradientOptions& options)
    : groups_(groups),
      layout_(layout),
      dtypes_(dtypes.begin(), dtypes.end()),
      options_(options),
      ranks_(groups.all().size()),
      list_(params, options.grad_dtype),
      full_places_(
          place_buckets(layout, dtypes, 1, UnitMemory::alignment(options.on_device, options.keeps_full))),
      shard_places_(place_buckets(layout, dtypes, layout.shards, 1)),
      memory_(options.on_device ? groups.shards() : groups.all(), options.on_device, full_places_,
              shard_places_.bytes, unit_options(full_places_, options)),
      unit_labels_(unit_labels(layout, params)),
      intake_(list_, false),
      params_(params.size()),
      units_(layout.units.size()),
      peak_full_(memory_.units().held()) {
  prepare_params(params, layout);
}

GradientShards::~GradientShards() {
  if (wait_idle(Deadline::after_ms(kReductionWaitMs))) return;
  log(DSC_LOG_WARN, "%s: %zu bytes of gradients are kept: reductions did not end within %d ms",
      groups_.all().name().c_str(), full_places_.bytes, kReductionWaitMs);
  memory_.keep();
}

void GradientShards::prepare_params(std::span<const Tensor> params, const ShardLayout& layout) {
  std::vector<Parts> covered(units_.size());
  for (size_t i = 0; i < params.size(); ++i) {
    const auto [bucket, start] = layout.places[i];
    Param& param = params_[i];
    param.count = params[i].count;
    param.bytes = param.count * dtype_bytes(dtype_of(i));
    const size_t offset = full_places_.buckets[bucket] + start * dtype_bytes(dtype_of(i));
    param.unit = layout.buckets[bucket].unit;
    if (memory_.units().views()) param.view = memory_.units().views() + offset;
    param.place = offset - full_places_.units[param.unit].offset;
    ++units_[param.unit].params;
    covered[param.unit].emplace_back(param.place, param.bytes);
  }
  for (size_t u = 0; u < units_.size(); ++u)
    units_[u].gaps = gaps_between(std::move(covered[u]), full_places_.units[u].bytes);
}

// The caller may write to the view from now on. A unit that is in the pool already holds anything there.
void* GradientShards::view(size_t index) {
  const Param& param = params_[index];
  if (!param.view) fail_no_view();
  const MutexLock lock(launch_mutex_);
  Unit& unit = units_[param.unit];
  if (!unit.viewed && unit.live && memory_.units().is_dirty(param.unit)) {
    const MutexLock marks(intake_.mutex);
    for (size_t i = 0; i < params_.size(); ++i)
      if (params_[i].unit == param.unit && intake_.marks().is_untouched(i))
        memory_.zero(place_of(params_[i]), params_[i].bytes);
  }
  unit.viewed = true;
  return param.view;
}

Elements GradientShards::shard(size_t bucket) const {
  return {memory_.shards() + shard_places_.buckets[bucket], layout_.shard_size(bucket), dtypes_[bucket]};
}

HeldBytes GradientShards::held() const {
  const MutexLock lock(launch_mutex_);
  return {shard_places_.bytes, memory_.units().held(), peak_full_};
}

bool GradientShards::has_sums() const {
  const MutexLock lock(intake_.mutex);
  return has_sums_;
}

bool GradientShards::is_running() const noexcept {
  if (blocked_.load() != 0 || intake_.is_finishing()) return true;
  const MutexLock lock(launch_mutex_);
  return collected_ < launched_;
}

bool GradientShards::wait_idle(Deadline deadline) noexcept {
  bool idle = true;
  const MutexLock lock(launch_mutex_);
  for (Unit& unit : units_)
    for (const auto& work : unit.works) idle = wait_ignoring_failure(*work, deadline) && idle;
  return memory_.wait_idle(deadline) && idle;
}

void GradientShards::begin(bool adds, uint64_t step_tag, void* stream) {
  memory_.check_stream(stream);
  const MutexLock lock(intake_.mutex);
  intake_.marks().expect_finished(groups_.all().rank());
  if (adds && !has_sums_)
    fail(DSC_ERR_STATE, "accumulate is 1, but no finished iteration has left gradients to add to");
  if (memory_.in_stream_order()) expect_no_check(*groups_.all().nonfinite());
  // The optimizer has read the shards on this stream, and the program writes to views behind it.
  memory_.follow(stream);
  memory_.lead(stream);
  adds_ = adds;
  step_tag_ = step_tag;
  has_sums_ = false;
  for (Unit& unit : units_) unit.pending.store(unit.params, std::memory_order_relaxed);
  intake_.begin(false);
}

// The reduction of a bucket leaves this rank's shard where it stands in the bucket.
Call GradientShards::bucket_call(size_t bucket) const {
  Call call;
  call.kind = OpKind::kReduceScatter;
  call.dtype = dtypes_[bucket];
  const bool divides_once = options_.average == DSC_AVERAGE_POST && !groups_.replicas();
  call.op = divides_once ? DSC_OP_AVG : DSC_OP_SUM;
  if (options_.average == DSC_AVERAGE_PRE) call.prescale = 1.0 / ranks_;
  call.count = layout_.shard_size(bucket);
  const size_t unit = layout_.buckets[bucket].unit;
  std::byte* const full =
      memory_.units().buffer(unit) + (full_places_.buckets[bucket] - full_places_.units[unit].offset);
  call.send = full;
  call.recv = full + groups_.shard() * call.count * dtype_bytes(call.dtype);
  if (!memory_.in_stream_order()) call.nonfinite = groups_.shards().nonfinite()->check_for(call.dtype);
  call.stream = memory_.stream();
  call.tag = step_tag_ * layout_.buckets.size() + bucket + 1;
  write_note(call, unit_labels_[unit], step_tag_);
  return call;
}

void GradientShards::launch(size_t unit) {
  const BlockedScope scope(blocked_);
  groups_.run(groups_.shards(), [&] {
    for (const size_t b : layout_.units[unit]) {
      if (layout_.buckets[b].size == 0) continue;
      Call call = bucket_call(b);
      scale_here_if_needed(memory_, groups_.shards(), call, layout_.buckets[b].size);
      units_[unit].works.push_back(groups_.shards().start(call));
    }
  });
}

// Sums a unit's shards over the copies, in the order of the copies. What is not finite was found before, by
// the reductions of the copies.
void GradientShards::replicate(size_t unit) {
  units_[unit].works.clear();
  groups_.run(*groups_.replicas(), [&] {
    for (const size_t b : layout_.units[unit]) {
      if (layout_.buckets[b].size == 0) continue;
      Call call = bucket_call(b);
      call.kind = OpKind::kAllReduce;
      call.op = DSC_OP_SUM;
      call.prescale = 1;
      call.nonfinite = NonFiniteCheck::kOff;
      call.send = call.recv;
      call.stream = memory_.stream(ShardMemory::Queue::kBetweenOperations);
      units_[unit].works.push_back(groups_.replicas()->start(call));
    }
  });
}

// A gradient that is not finite fails the iteration and not the groups, so the other units go on.
void GradientShards::await(Unit& unit, Comm& group, ShardMemory::Queue queue) {
  const BlockedScope scope(blocked_);
  for (const auto& work : unit.works) {
    const Failure failure = memory_.await(*work, queue);
    if (failure.code == DSC_OK) continue;
    if (failure.code != DSC_ERR_NONFINITE) groups_.rethrow(group, Error(failure));
    if (nonfinite_) continue;
    nonfinite_ = failure;
    nonfinite_unit_ = static_cast<size_t>(&unit - units_.data());
  }
}

void GradientShards::collect(size_t unit) {
  units_[unit].works.clear();
  for (const size_t b : layout_.units[unit]) {
    const auto [to, count, dtype] = shard(b);
    if (count == 0) continue;
    auto* const sum = static_cast<std::byte*>(bucket_call(b).recv);
    if (options_.average == DSC_AVERAGE_POST && groups_.replicas())
      memory_.divide({sum, count, dtype}, ranks_);
    memory_.put({to, dtype, sum, dtype, count}, adds_);
  }
  memory_.units().close(unit);
  units_[unit].live = false;
}

// Waits for the first operation that is not over, and carries on.
void GradientShards::wait_for_oldest(Deadline deadline) {
  if (memory_.in_stream_order()) return advance(collected_ + 1);
  {
    const BlockedScope scope(blocked_);
    for (const auto& work : units_[unit_at(collected_)].works) wait_ignoring_failure(*work, deadline);
  }
  advance(0);
}

// Carries on with the units that were launched, and waits until at least `wanted` of them are in the shards.
// In stream order nothing comes into the shards before it is wanted, because gradients that come later would
// have to wait for the reductions.
void GradientShards::advance(size_t wanted) {
  const auto is_done = [&](size_t position) {
    if (memory_.in_stream_order()) return false;
    return std::ranges::all_of(units_[unit_at(position)].works,
                               [](const auto& work) { return work->test(); });
  };
  const bool relays = memory_.in_stream_order() && groups_.replicas();
  const auto queue = relays ? ShardMemory::Queue::kBetweenOperations : ShardMemory::Queue::kMain;
  for (; replicated_ < launched_ && (replicated_ < wanted || relays || is_done(replicated_)); ++replicated_) {
    await(units_[unit_at(replicated_)], groups_.shards(), queue);
    if (groups_.replicas()) replicate(unit_at(replicated_));
  }
  for (; collected_ < replicated_ && (collected_ < wanted || is_done(collected_)); ++collected_) {
    if (groups_.replicas())
      await(units_[unit_at(collected_)], *groups_.replicas(), ShardMemory::Queue::kMain);
    collect(unit_at(collected_));
  }
}

}  // namespace dsc
