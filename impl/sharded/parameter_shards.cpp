#include "sharded/parameter_shards.hpp"

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

constexpr int kGatherWaitMs = 2000;

// The pool must hold the unit that is in use and all units that are gathered ahead.
UnitOptions unit_options(const FlatOffsets& full, const ParameterOptions& options) {
  size_t pool_bytes = window_bytes(full, static_cast<size_t>(options.prefetch) + 1);
  if (options.max_live_bytes > 0) pool_bytes = std::min(pool_bytes, options.max_live_bytes);
  return {options.keeps_full, pool_bytes, true};
}

}  // namespace

ParameterShards::ParameterShards(ShardGroups& groups, const ShardLayout& layout,
                                 std::span<const Tensor> params, std::span<const int32_t> dtypes,
                                 const ParameterOptions& options)
    : groups_(groups),
      layout_(layout),
      dtypes_(dtypes.begin(), dtypes.end()),
      options_(options),
      unit_labels_(unit_labels(layout, params)),
      full_offsets_(
          bucket_offsets(layout, dtypes, 1, UnitMemory::alignment(options.on_device, options.keeps_full))),
      shard_offsets_(bucket_offsets(layout, dtypes, layout.shards, 1)),
      memory_(options.on_device ? groups.params() : groups.all(), options.on_device, full_offsets_,
              options.keeps_full ? 0 : shard_offsets_.bytes, unit_options(full_offsets_, options)),
      units_(layout.units.size()),
      peak_full_(memory_.units().held()) {
  for (size_t i = 0; i < params.size(); ++i) {
    const auto [bucket, start] = layout.locations[i];
    const size_t unit = layout.buckets[bucket].unit;
    const size_t offset = full_offsets_.buckets[bucket] + start * dtype_bytes(dtypes_[bucket]);
    params_.push_back({unit, offset - full_offsets_.units[unit].offset});
  }
  if (!options.keeps_full) return;
  for (Unit& unit : units_) unit.state = State::kGathered;
}

ParameterShards::~ParameterShards() {
  if (wait_idle(Deadline::after_ms(kGatherWaitMs))) return;
  log(DSC_LOG_LEVEL_WARN,
      "%s: %zu bytes of parameters are not freed, because gathers did not end within %d ms",
      groups_.all().name().c_str(), full_offsets_.bytes, kGatherWaitMs);
  memory_.keep();
}

std::byte* ParameterShards::shard(size_t bucket) {
  const size_t bytes = layout_.shard_size(bucket) * dtype_bytes(dtypes_[bucket]);
  return options_.keeps_full
             ? memory_.units().views() + full_offsets_.buckets[bucket] + groups_.shard() * bytes
             : memory_.shards() + shard_offsets_.buckets[bucket];
}

void ParameterShards::set(size_t bucket, size_t first, size_t count, const std::byte* values) {
  const size_t element = dtype_bytes(dtypes_[bucket]);
  const size_t size = layout_.shard_size(bucket);
  const size_t begin = options_.keeps_full ? first : std::max(first, groups_.shard() * size);
  const size_t end =
      options_.keeps_full ? first + count : std::min(first + count, (groups_.shard() + 1) * size);
  if (begin >= end) return;
  std::byte* const to = options_.keeps_full
                            ? memory_.units().views() + full_offsets_.buckets[bucket] + begin * element
                            : shard(bucket) + (begin - groups_.shard() * size) * element;
  memory_.put({to, dtypes_[bucket], values + (begin - first) * element, dtypes_[bucket], end - begin}, false);
}

void ParameterShards::check_unit(size_t unit) const {
  if (unit >= layout_.units.size())
    fail(DSC_ERR_INVALID_ARG, "unit is %zu, expected 0 to %zu", unit, layout_.units.size() - 1);
}

// Starts to gather the parameters of a unit. Ranks compare the tag of the call, which contains the step, so
// that ranks in different steps detect the difference.
void ParameterShards::start_gather(size_t unit) {
  Unit& gathered = units_[unit];
  memory_.units().open(unit, true);
  peak_full_ = std::max(peak_full_, memory_.units().held());
  gathered.state = State::kGathering;
  const uint64_t step = steps_;
  groups_.run(groups_.params(), [&] {
    for (const size_t b : layout_.units[unit]) {
      if (layout_.buckets[b].size == 0) continue;
      Call call;
      call.kind = OpKind::kAllGather;
      call.dtype = dtypes_[b];
      call.send = shard(b);
      call.recv =
          memory_.units().buffer(unit) + (full_offsets_.buckets[b] - full_offsets_.units[unit].offset);
      call.count = layout_.shard_size(b);
      call.stream = memory_.stream();
      call.tag = step * layout_.buckets.size() + b + 1;
      std::snprintf(call.note, sizeof call.note, "%s, step %llu", clipped(unit_labels_[unit], 24).c_str(),
                    static_cast<unsigned long long>(step));
      gathered.works.push_back(groups_.params().start(call));
    }
  });
}

void ParameterShards::await(size_t unit) {
  Unit& gathered = units_[unit];
  if (gathered.state != State::kGathering) return;
  groups_.run(groups_.params(), [&] {
    for (const auto& work : gathered.works)
      if (const Failure failure = memory_.await(*work); failure.code != DSC_OK) throw Error(failure);
  });
  gathered.works.clear();
  gathered.state = State::kGathered;
}

// Releases the memory of a unit.
void ParameterShards::drop(size_t unit) {
  if (units_[unit].state == State::kSharded) return;
  await(unit);
  memory_.units().close(unit);
  units_[unit] = {};
}

bool ParameterShards::fits(size_t unit) const {
  return options_.max_live_bytes == 0 ||
         live_bytes() + full_offsets_.units[unit].bytes <= options_.max_live_bytes;
}

// Drops units that were gathered ahead and are not in use, until there is room for `unit`. They are dropped
// in index order, which is the same on all ranks.
void ParameterShards::make_room(size_t unit) {
  for (size_t other = 0; other < units_.size() && !fits(unit); ++other)
    if (!units_[other].unsharded) drop(other);
  if (fits(unit)) return;
  std::string live;
  for (size_t other = 0; other < units_.size(); ++other)
    if (units_[other].state != State::kSharded) live += (live.empty() ? "" : ", ") + unit_labels_[other];
  fail(DSC_ERR_STATE,
       "%s needs %zu bytes, but other units use %zu of at most %zu bytes (options->max_live_bytes); call "
       "dsc_sharded_reshard() for one of: %s",
       unit_labels_[unit].c_str(), full_offsets_.units[unit].bytes, live_bytes(), options_.max_live_bytes,
       clipped(live, 200).c_str());
}

size_t ParameterShards::live_bytes() const {
  size_t bytes = 0;
  for (size_t unit = 0; unit < units_.size(); ++unit)
    if (units_[unit].state != State::kSharded) bytes += full_offsets_.units[unit].bytes;
  return bytes;
}

void ParameterShards::start_prefetches() {
  for (const size_t unit : order_.next(static_cast<size_t>(options_.prefetch))) {
    if (units_[unit].state != State::kSharded) continue;
    if (memory_.units().growth(unit) > 0) return;  // gather ahead only what fits into the pool
    start_gather(unit);
  }
}

void ParameterShards::unshard(size_t unit) {
  groups_.check_alive();
  check_unit(unit);
  if (options_.keeps_full) return;
  const MutexLock lock(mutex_);
  if (units_[unit].unsharded) fail(DSC_ERR_STATE, "%s is already unsharded", unit_labels_[unit].c_str());
  if (units_[unit].state == State::kSharded) {
    make_room(unit);
    start_gather(unit);
  }
  units_[unit].unsharded = true;
  order_.note(unit);
  start_prefetches();
}

void ParameterShards::wait(size_t unit, void* stream) {
  memory_.check_stream(stream);
  groups_.check_alive();
  check_unit(unit);
  const MutexLock lock(mutex_);
  if (!options_.keeps_full && !units_[unit].unsharded)
    fail(DSC_ERR_STATE, "%s is sharded; call dsc_sharded_unshard() first", unit_labels_[unit].c_str());
  await(unit);
  memory_.lead(stream);
}

// May also be called after a failure, because it involves no other rank.
void ParameterShards::reshard(size_t unit, void* stream) {
  memory_.check_stream(stream);
  check_unit(unit);
  if (options_.keeps_full) return;
  const MutexLock lock(mutex_);
  if (!units_[unit].unsharded)
    fail(DSC_ERR_STATE, "%s is already sharded; expected dsc_sharded_unshard() first",
         unit_labels_[unit].c_str());
  memory_.follow(stream);  // work on the stream may still read the parameters
  drop(unit);
}

// Starts a barrier if a step has changed nothing. A rank that passed a different `changed` starts a gather
// instead. The calls then differ, which is an error on both ranks. Without the barrier, one rank would wait
// forever. This rank waits for the barrier only in the next step.
void ParameterShards::start_unchanged() {
  Call call;
  call.kind = OpKind::kBarrier;
  call.tag = steps_;
  std::snprintf(call.note, sizeof call.note, "step %llu changes nothing",
                static_cast<unsigned long long>(steps_));
  std::shared_ptr<Work> work;
  groups_.run(groups_.params(), [&] { work = groups_.params().start(call); });
  unchanged_ = std::move(work);
}

void ParameterShards::await_all() {
  if (const auto work = std::exchange(unchanged_, nullptr))
    // No deadline is needed here, because the operation has a time-out.
    groups_.run(groups_.params(), [&work] { work->wait(Deadline::never()); });
  for (size_t unit = 0; unit < units_.size(); ++unit) await(unit);
}

uint64_t ParameterShards::step_tag() const {
  const MutexLock lock(mutex_);
  return 2 * steps_ + (changed_ ? 1 : 0);
}

void ParameterShards::step(bool changed, void* stream) {
  memory_.check_stream(stream);
  groups_.check_alive();
  const MutexLock lock(mutex_);
  memory_.follow(stream);
  await_all();
  ++steps_;
  changed_ = changed;
  if (!changed && !memory_.in_stream_order()) start_unchanged();
  if (options_.keeps_full) {
    for (size_t unit = 0; changed && unit < units_.size(); ++unit) start_gather(unit);
    return;
  }
  if (changed)
    for (size_t unit = 0; unit < units_.size(); ++unit) drop(unit);
  order_.end_step();
  start_prefetches();
}

void ParameterShards::wait_for_gathers(void* stream) {
  const MutexLock lock(mutex_);
  await_all();
  memory_.lead(stream);
}

void* ParameterShards::view(size_t index) const {
  const auto [unit, offset] = params_[index];
  const MutexLock lock(mutex_);
  if (units_[unit].state == State::kGathered && (options_.keeps_full || units_[unit].unsharded))
    return (memory_.units().views() ? memory_.units().views() + full_offsets_.units[unit].offset
                                    : memory_.units().buffer(unit)) +
           offset;
  fail(DSC_ERR_STATE, "parameter %zu belongs to %s, which is not ready; call %sdsc_sharded_wait() first",
       index, unit_labels_[unit].c_str(), options_.keeps_full ? "" : "dsc_sharded_unshard() and ");
}

HeldBytes ParameterShards::held() const {
  const MutexLock lock(mutex_);
  return {options_.keeps_full ? 0 : shard_offsets_.bytes, memory_.units().held(), peak_full_};
}

bool ParameterShards::wait_idle(Deadline deadline) noexcept {
  bool idle = true;
  const MutexLock lock(mutex_);
  if (unchanged_) idle = wait_ignoring_failure(*unchanged_, deadline);
  for (Unit& unit : units_)
    for (const auto& work : unit.works) idle = wait_ignoring_failure(*work, deadline) && idle;
  return memory_.wait_idle(deadline) && idle;
}

}  // namespace dsc
