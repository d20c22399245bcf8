// Parameters in flat buffers. This rank owns one shard of each bucket. Full parameters are gathered unit by
// unit, and released after use in stage 3.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "bucket_plan/shard_layout.hpp"
#include "comm/tensor.hpp"
#include "sharded/flat_offsets.hpp"
#include "sharded/gradient_shards.hpp"
#include "sharded/prefetch.hpp"
#include "sharded/shard_groups.hpp"
#include "sharded/shard_memory.hpp"

namespace dsc {

struct ParameterOptions {
  bool on_device = false;
  bool keeps_full = true;     // in stages 1 and 2, full parameters keep their memory permanently
  size_t max_live_bytes = 0;  // limit for full parameters in stage 3; 0 means no limit
  int32_t prefetch = 1;       // number of units to gather ahead
};

// Only one thread at a time may call functions that are not marked "any thread".
class ParameterShards {
 public:
  // The constructor is collective. `dtypes` are the types of the buckets.
  ParameterShards(ShardGroups& groups, const ShardLayout& layout, std::span<const Tensor> params,
                  std::span<const int32_t> dtypes, const ParameterOptions& options);
  ~ParameterShards();
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;

  // Writes initial elements of a bucket. `values` must be in memory() or in memory of the same kind. Elements
  // that belong to the shards of other ranks are ignored.
  void set(size_t bucket, size_t first, size_t count, const std::byte* values);

  // Starts to gather a unit, and also the units that were used after it in the previous step.
  void unshard(size_t unit);
  // Waits until a unit's parameters are gathered.
  void wait(size_t unit, void* stream);
  void reshard(size_t unit, void* stream);
  // Ends a step. If `changed` is set, the shards have new values, and full parameters are gathered again.
  void step(bool changed, void* stream);
  // Waits for all gathers, because they read the shards.
  void wait_for_gathers(void* stream);
  // Returns a tag that is equal on two ranks only if both have ended the same steps, each with the same value
  // of `changed`.
  uint64_t step_tag() const;

  // Any thread. Returns the address of a parameter. Throws STATE unless its unit is gathered.
  void* view(size_t index) const;
  std::byte* shard(size_t bucket);
  HeldBytes held() const;
  ShardMemory& memory() noexcept { return memory_; }
  bool wait_idle(Deadline deadline) noexcept;

 private:
  enum class State : uint8_t { kSharded, kGathering, kGathered };
  struct Unit {
    State state = State::kSharded;
    bool unsharded = false;  // true if the caller has called unshard()
    std::vector<std::shared_ptr<Work>> works;
  };
  struct Param {
    size_t unit;
    size_t offset;  // offset from the start of the unit, in bytes
  };

  void check_unit(size_t unit) const;
  void start_gather(size_t unit) DSC_REQUIRES(mutex_);
  void await(size_t unit) DSC_REQUIRES(mutex_);
  void drop(size_t unit) DSC_REQUIRES(mutex_);
  bool fits(size_t unit) const DSC_REQUIRES(mutex_);
  void make_room(size_t unit) DSC_REQUIRES(mutex_);
  size_t live_bytes() const DSC_REQUIRES(mutex_);
  void start_prefetches() DSC_REQUIRES(mutex_);
  void start_unchanged() DSC_REQUIRES(mutex_);
  void await_all() DSC_REQUIRES(mutex_);

  ShardGroups& groups_;
  const ShardLayout& layout_;
  const std::vector<int32_t> dtypes_;
  const ParameterOptions options_;
  const std::vector<std::string> unit_labels_;
  const FlatOffsets full_offsets_;
  const FlatOffsets shard_offsets_;
  std::vector<Param> params_;
  ShardMemory memory_;  // mutex_ guards the memory of units

  mutable Mutex mutex_;
  std::vector<Unit> units_ DSC_GUARDED_BY(mutex_);
  UseOrder order_ DSC_GUARDED_BY(mutex_);
  size_t peak_full_ DSC_GUARDED_BY(mutex_) = 0;
  uint64_t steps_ DSC_GUARDED_BY(mutex_) = 0;
  bool changed_ DSC_GUARDED_BY(mutex_) = true;  // true if the latest step changed the shards
  std::shared_ptr<Work> unchanged_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
