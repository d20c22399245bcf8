// The reductions of full gradients into this rank's shards. They run unit by unit, in the same order on all
// ranks.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bucket_plan/shard_layout.hpp"
#include "sharded/flat_offsets.hpp"
#include "sharded/shard_groups.hpp"
#include "sharded/shard_memory.hpp"

namespace dsc {

struct ReductionOptions {
  int32_t average = DSC_AVERAGE_PRE;
  std::vector<int32_t> dtypes;  // element types of the buckets
  std::vector<std::string> unit_labels;
};

// Only one thread at a time may use an object, except for is_blocked(). Units are launched from the last one
// to the first.
class UnitReductions {
 public:
  UnitReductions(ShardGroups& groups, const ShardLayout& layout, const FlatOffsets& full,
                 const FlatOffsets& shards, ShardMemory& memory, ReductionOptions options);

  // Begins an iteration. A reduction fails if ranks have different step tags.
  void begin(bool adds, uint64_t step_tag) noexcept;
  // Returns the unit that is launched next; nullopt if all were launched.
  std::optional<size_t> next() const noexcept;
  void launch_next();
  size_t launched() const noexcept { return launched_; }
  // Returns true if some launched units have not been written to the shards yet.
  bool has_pending() const noexcept { return collected_ < launched_; }
  // Continues the launched units, and waits until at least `wanted` of them have been written to the shards.
  void advance(size_t wanted);
  void wait_for_all() { advance(launched_); }
  // Waits for the oldest pending unit, and continues with the others.
  void wait_for_oldest() { advance(collected_ + 1); }
  void wait_for_oldest(Deadline deadline);
  // Returns the failure of this iteration if a gradient was not finite. Otherwise returns OK; this covers
  // only the gradients of this copy of the model.
  Failure nonfinite() const;
  void end() noexcept;

  // Returns true while a thread is inside an operation of the groups. Any thread.
  bool is_blocked() const noexcept { return blocked_.load() != 0; }
  bool wait_idle(Deadline deadline) noexcept;
  Elements shard(size_t bucket) const;

 private:
  size_t unit_at(size_t position) const noexcept { return works_.size() - 1 - position; }
  Call call_of(size_t bucket) const;
  void scale_if_needed(Call& call, size_t count);
  void replicate(size_t unit);
  void await(size_t unit, Comm& group, ShardMemory::Queue queue);
  void collect(size_t unit);
  bool is_done(size_t position) const;

  ShardGroups& groups_;
  const ShardLayout& layout_;
  const FlatOffsets& full_offsets_;
  const FlatOffsets& shard_offsets_;
  ShardMemory& memory_;
  const ReductionOptions options_;
  const int ranks_;
  bool adds_ = false;
  uint64_t step_tag_ = 0;
  std::vector<std::vector<std::shared_ptr<Work>>> works_;  // by unit
  size_t launched_ = 0, replicated_ = 0, collected_ = 0;
  std::optional<Failure> nonfinite_;
  size_t nonfinite_unit_ = 0;
  std::atomic<int> blocked_{0};
};

}  // namespace dsc
