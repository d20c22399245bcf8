// The gradients of one iteration. Any thread may mark them. They are reduced unit by unit, in the same order
// on all ranks, and stored in or added to this rank's shards.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/guard.hpp"
#include "base/mutex.hpp"
#include "bucket_plan/shard_layout.hpp"
#include "comm/tensor.hpp"
#include "gradients/intake.hpp"
#include "sharded/flat_offsets.hpp"
#include "sharded/shard_groups.hpp"
#include "sharded/shard_memory.hpp"
#include "sharded/unit_reductions.hpp"

namespace dsc {

struct GradientOptions {
  int32_t average = DSC_AVERAGE_PRE;
  int32_t grad_dtype = 0;  // 0 means the type of each parameter
  bool on_device = false;
  bool keeps_full = false;    // in stage 1, full gradients keep their memory permanently
  size_t max_live_bytes = 0;  // limit for full gradients; 0 means no limit
};

struct HeldBytes {
  size_t shards = 0;
  size_t full = 0;
  size_t peak_full = 0;
};

class GradientShards {
 public:
  // The constructor is collective. `dtypes` are the types of gradients, by bucket.
  GradientShards(ShardGroups& groups, const ShardLayout& layout, std::span<const Tensor> params,
                 std::span<const int32_t> dtypes, const GradientOptions& options);
  ~GradientShards();
  GradientShards(const GradientShards&) = delete;
  GradientShards& operator=(const GradientShards&) = delete;

  // If `adds` is set, the results of this iteration are added to the contents of the shards. A reduction
  // fails if ranks have different step tags.
  void begin(bool adds, uint64_t step_tag, void* stream);
  void finish(void* stream);  // collective
  bool is_open() const { return !intake_.is_idle(); }

  // May be called from several threads simultaneously. `dtype` is the type of `gradient`: the view's type,
  // the parameter's type, or 0 for the view's type.
  void accumulate(size_t index, const void* gradient, int32_t dtype, void* stream);
  void mark_ready(size_t index, const void* gradient, int32_t dtype, void* stream);
  void mark_unused(size_t index);

  // May be called from any thread.
  void* view(size_t index);
  Elements shard(size_t bucket) const { return reductions_.shard(bucket); }
  HeldBytes held() const;
  ShardMemory& memory() noexcept { return memory_; }
  // Returns true while a thread is inside a call that may be waiting for other ranks.
  bool is_running() const noexcept;
  // Returns true if the latest iteration succeeded and no new one has begun.
  bool has_sums() const;
  bool wait_idle(Deadline deadline) noexcept;

 private:
  struct Param {
    std::byte* view = nullptr;  // permanent address for the caller; null if the unit has none
    size_t offset = 0;          // offset from the start of the unit, in bytes
    size_t count = 0;
    size_t bytes = 0;
    size_t unit = 0;
  };
  struct Unit {
    size_t params = 0;
    std::atomic<size_t> pending{0};
    // True after the caller has requested a view. Gradients may then be written there before any call names
    // them. launch_mutex_ guards this member.
    bool viewed = false;
    // Gaps between parameters: offset from the start of the unit and length, in bytes. They are reduced with
    // the gradients, so they must contain zeros.
    std::vector<std::pair<size_t, size_t>> gaps;
  };

  void prepare_params(std::span<const Tensor> params, const ShardLayout& layout);

  // gradient_marks.cpp
  void check_mark(size_t index, const void* gradient) const;
  std::byte* storage_of(const Param& param) const {
    return memory_.units().buffer(param.unit) + param.offset;
  }
  int32_t dtype_of(size_t index) const { return list_.tensors[index].dtype; }  // type of the view
  int32_t type_of(size_t index, const void* gradient, int32_t dtype) const;
  void put(size_t index, const void* gradient, int32_t dtype, bool adds, void* stream);
  void zero_unviewed(size_t index);
  void hold(size_t unit);
  void become_ready(size_t index);
  void launch_ready();

  // gradient_finish.cpp
  Failure end_incomplete(size_t launched);
  Failure nonfinite_cause();
  void end_iteration(bool has_sums);

  ShardGroups& groups_;
  const GradientOptions options_;
  const ParamList list_;
  FlatOffsets full_offsets_;
  FlatOffsets shard_offsets_;
  ShardMemory memory_;  // launch_mutex_ guards the memory of units

  GradientIntake intake_;
  bool has_sums_ DSC_GUARDED_BY(intake_.mutex) = false;
  std::vector<Param> params_;

  mutable Mutex launch_mutex_;
  std::vector<Unit> units_;
  UnitReductions reductions_;  // launch_mutex_ guards the launched and collected units
  size_t peak_full_ DSC_GUARDED_BY(launch_mutex_) = 0;
};

}  // namespace dsc
