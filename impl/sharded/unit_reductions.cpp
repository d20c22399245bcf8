#include "sharded/unit_reductions.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.hpp"
#include "comm/tensor.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

// Counts the calling thread as blocked: it may wait for other ranks while it holds the lock. close() checks
// this, because it must not wait for that lock.
class BlockedScope {
 public:
  explicit BlockedScope(std::atomic<int>& blocked) noexcept : blocked_(blocked) { blocked_.fetch_add(1); }
  ~BlockedScope() { blocked_.fetch_sub(1); }
  BlockedScope(const BlockedScope&) = delete;
  BlockedScope& operator=(const BlockedScope&) = delete;

 private:
  std::atomic<int>& blocked_;
};

void write_note(Call& call, const std::string& unit, uint64_t step_tag) {
  std::snprintf(call.note, sizeof call.note, "%s, step %llu%s", clipped(unit, 16).c_str(),
                static_cast<unsigned long long>(step_tag / 2), step_tag % 2 == 0 ? " unchanged" : "");
}

}  // namespace

UnitReductions::UnitReductions(ShardGroups& groups, const ShardLayout& layout, const FlatOffsets& full,
                               const FlatOffsets& shards, ShardMemory& memory, ReductionOptions options)
    : groups_(groups),
      layout_(layout),
      full_offsets_(full),
      shard_offsets_(shards),
      memory_(memory),
      options_(std::move(options)),
      ranks_(groups.all().size()),
      works_(layout.units.size()) {}

void UnitReductions::begin(bool adds, uint64_t step_tag) noexcept {
  adds_ = adds;
  step_tag_ = step_tag;
}

std::optional<size_t> UnitReductions::next() const noexcept {
  if (launched_ == works_.size()) return std::nullopt;
  return unit_at(launched_);
}

Elements UnitReductions::shard(size_t bucket) const {
  return {memory_.shards() + shard_offsets_.buckets[bucket], layout_.shard_size(bucket),
          options_.dtypes[bucket]};
}

// Returns the reduction of a bucket. Its result is this rank's shard, at the position of the shard in the
// bucket.
Call UnitReductions::call_of(size_t bucket) const {
  Call call;
  call.kind = OpKind::kReduceScatter;
  call.dtype = options_.dtypes[bucket];
  const bool divides_once = options_.average == DSC_AVERAGE_POST && !groups_.replicas();
  call.op = divides_once ? DSC_OP_AVG : DSC_OP_SUM;
  if (options_.average == DSC_AVERAGE_PRE) call.prescale = 1.0 / ranks_;
  call.count = layout_.shard_size(bucket);
  const size_t unit = layout_.buckets[bucket].unit;
  std::byte* const full =
      memory_.units().buffer(unit) + (full_offsets_.buckets[bucket] - full_offsets_.units[unit].offset);
  call.send = full;
  call.recv = full + groups_.shard() * call.count * dtype_bytes(call.dtype);
  if (!memory_.in_stream_order()) call.nonfinite = groups_.shards().nonfinite()->check_for(call.dtype);
  call.stream = memory_.stream();
  call.tag = step_tag_ * layout_.buckets.size() + bucket + 1;
  write_note(call, options_.unit_labels[unit], step_tag_);
  return call;
}

void UnitReductions::launch_next() {
  const size_t unit = unit_at(launched_);
  const BlockedScope scope(blocked_);
  groups_.run(groups_.shards(), [&] {
    for (const size_t b : layout_.units[unit]) {
      if (layout_.buckets[b].size == 0) continue;
      Call call = call_of(b);
      scale_if_needed(call, layout_.buckets[b].size);
      works_[unit].push_back(groups_.shards().start(call));
    }
  });
  ++launched_;
}

// Scales the elements here if the device engine cannot. It cannot scale all types, and it scales nothing in a
// group of one rank.
void UnitReductions::scale_if_needed(Call& call, size_t count) {
  if (!memory_.in_stream_order() || call.prescale == 1 || !groups_.shards().unsupported_reason(call)) return;
  memory_.scale({const_cast<void*>(call.send), count, call.dtype}, std::exchange(call.prescale, 1));
}

// Sums a unit's shards over all copies of the model, in the order of the copies. The check for NaNs and
// infinities is off, because it was part of the reductions within each copy.
void UnitReductions::replicate(size_t unit) {
  works_[unit].clear();
  groups_.run(*groups_.replicas(), [&] {
    for (const size_t b : layout_.units[unit]) {
      if (layout_.buckets[b].size == 0) continue;
      Call call = call_of(b);
      call.kind = OpKind::kAllReduce;
      call.op = DSC_OP_SUM;
      call.prescale = 1;
      call.nonfinite = NonFiniteCheck::kOff;
      call.send = call.recv;
      call.stream = memory_.stream(ShardMemory::Queue::kBetweenOperations);
      works_[unit].push_back(groups_.replicas()->start(call));
    }
  });
}

// Waits for the operations of a unit. A gradient that is not finite fails the iteration but not the groups,
// so the other units continue.
void UnitReductions::await(size_t unit, Comm& group, ShardMemory::Queue queue) {
  const BlockedScope scope(blocked_);
  for (const auto& work : works_[unit]) {
    const Failure failure = memory_.await(*work, queue);
    if (failure.code == DSC_OK) continue;
    if (failure.code != DSC_ERR_NONFINITE) groups_.rethrow(group, Error(failure));
    if (nonfinite_) continue;
    nonfinite_ = failure;
    nonfinite_unit_ = unit;
  }
}

void UnitReductions::collect(size_t unit) {
  works_[unit].clear();
  for (const size_t b : layout_.units[unit]) {
    const auto [to, count, dtype] = shard(b);
    if (count == 0) continue;
    auto* const sum = static_cast<std::byte*>(call_of(b).recv);
    if (options_.average == DSC_AVERAGE_POST && groups_.replicas())
      memory_.divide({sum, count, dtype}, ranks_);
    memory_.put({to, dtype, sum, dtype, count}, adds_);
  }
  memory_.units().close(unit);
}

void UnitReductions::wait_for_oldest(Deadline deadline) {
  if (memory_.in_stream_order()) return wait_for_oldest();
  {
    const BlockedScope scope(blocked_);
    for (const auto& work : works_[unit_at(collected_)]) wait_ignoring_failure(*work, deadline);
  }
  advance(0);
}

// Returns true if a unit can be written to the shards without waiting. On a device the answer is always
// false, because later gradients on the stream would wait for the reductions.
bool UnitReductions::is_done(size_t position) const {
  return !memory_.in_stream_order() &&
         std::ranges::all_of(works_[unit_at(position)], [](const auto& work) { return work->test(); });
}

void UnitReductions::advance(size_t wanted) {
  const bool relays = memory_.in_stream_order() && groups_.replicas();
  const auto queue = relays ? ShardMemory::Queue::kBetweenOperations : ShardMemory::Queue::kMain;
  for (; replicated_ < launched_ && (replicated_ < wanted || relays || is_done(replicated_)); ++replicated_) {
    await(unit_at(replicated_), groups_.shards(), queue);
    if (groups_.replicas()) replicate(unit_at(replicated_));
  }
  for (; collected_ < replicated_ && (collected_ < wanted || is_done(collected_)); ++collected_) {
    if (groups_.replicas()) await(unit_at(collected_), *groups_.replicas(), ShardMemory::Queue::kMain);
    collect(unit_at(collected_));
  }
}

Failure UnitReductions::nonfinite() const {
  if (!nonfinite_) return {};
  Failure failure = groups_.translated(groups_.shards(), *nonfinite_);
  failure.text = "a gradient of " + options_.unit_labels[nonfinite_unit_] + " on rank " +
                 std::to_string(failure.rank()) +
                 " is a NaN or infinite; the contents of the shards are undefined";
  return failure;
}

void UnitReductions::end() noexcept {
  for (auto& works : works_) works.clear();
  launched_ = replicated_ = collected_ = 0;
  nonfinite_.reset();
}

bool UnitReductions::wait_idle(Deadline deadline) noexcept {
  bool idle = true;
  for (const auto& works : works_)
    for (const auto& work : works) idle = wait_ignoring_failure(*work, deadline) && idle;
  return memory_.wait_idle(deadline) && idle;
}

}  // namespace dsc
