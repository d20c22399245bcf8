// The reductions of full gradients, unit by unit in one order on all ranks, from the full buffers into this
// rank's shards.
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
  std::vector<int32_t> dtypes;  // of the buckets
  std::vector<std::string> unit_labels;
};

// One thread at a time, except for is_blocked(). Units start from the last one to the first.
class UnitReductions {
 public:
  UnitReductions(ShardGroups& groups, const ShardLayout& layout, const FlatOffsets& full,
                 const FlatOffsets& shards, ShardMemory& memory, ReductionOptions options);

  // Ranks with different step tags cannot reduce together.
  void begin(bool adds, uint64_t step_tag) noexcept;
  // Returns the unit that is launched next; nullopt if all were launched.
  std::optional<size_t> next() const noexcept;
  void launch_next();
  size_t launched() const noexcept { return launched_; }
  // Whether units that were launched are not in the shards yet.
  bool has_pending() const noexcept { return collected_ < launched_; }
  // Continues the units that were launched, and waits until at least `wanted` of them are in the shards.
  void advance(size_t wanted);
  void wait_for_all() { advance(launched_); }
  // Waits for the oldest unit that has not ended, and continues.
  void wait_for_oldest() { advance(collected_ + 1); }
  void wait_for_oldest(Deadline deadline);
  // Returns why this iteration fails if a gradient was not finite; OK if all were finite, as far as this copy
  // knows.
  Failure nonfinite() const;
  void end() noexcept;

  // True while a thread is inside an operation of the groups. Any thread.
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
