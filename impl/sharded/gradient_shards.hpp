// Gradients of one iteration: marked by any thread, reduced unit by unit in one order on all ranks, and added
// to this rank's shards.
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
  int32_t grad_dtype = 0;  // 0: the type of each parameter
  bool on_device = false;
  bool keeps_full = false;    // stage 1: full gradients keep their memory permanently
  size_t max_live_bytes = 0;  // of full gradients; 0: no limit
};

struct HeldBytes {
  size_t shards = 0;
  size_t full = 0;
  size_t peak_full = 0;
};

class GradientShards {
 public:
  // Collective. `dtypes` are the types of the buckets' gradients.
  GradientShards(ShardGroups& groups, const ShardLayout& layout, std::span<const Tensor> params,
                 std::span<const int32_t> dtypes, const GradientOptions& options);
  ~GradientShards();
  GradientShards(const GradientShards&) = delete;
  GradientShards& operator=(const GradientShards&) = delete;

  // With `adds`, this iteration is added to the contents of the shards. Ranks with different step tags cannot
  // reduce together.
  void begin(bool adds, uint64_t step_tag, void* stream);
  void finish(void* stream);  // collective
  bool is_open() const { return !intake_.is_idle(); }

  // Any thread, several at once. `dtype` is that of the gradient: 0, the view's or the parameter's.
  void accumulate(size_t index, const void* gradient, int32_t dtype, void* stream);
  void mark_ready(size_t index, const void* gradient, int32_t dtype, void* stream);
  void mark_unused(size_t index);

  // Any thread.
  void* view(size_t index);
  Elements shard(size_t bucket) const { return reductions_.shard(bucket); }
  HeldBytes held() const;
  ShardMemory& memory() noexcept { return memory_; }
  // True while a thread is inside a call that other ranks may have to answer.
  bool is_running() const noexcept;
  // True once finish() has succeeded, until an iteration replaces the gradients or fails.
  bool has_sums() const;
  bool wait_idle(Deadline deadline) noexcept;

 private:
  struct Param {
    std::byte* view = nullptr;  // the address that the caller sees; null if there is no lasting one
    size_t offset = 0;          // bytes from the start of its unit
    size_t count = 0;
    size_t bytes = 0;
    size_t unit = 0;
  };
  struct Unit {
    size_t params = 0;
    std::atomic<size_t> pending{0};
    // The caller may write gradients to their views before they are named in a call. launch_mutex_ guards
    // this.
    bool viewed = false;
    // Gaps between parameters: bytes from the start of the unit, and length. They are also summed, so they
    // must be zero.
    std::vector<std::pair<size_t, size_t>> gaps;
  };

  void prepare_params(std::span<const Tensor> params, const ShardLayout& layout);

  // gradient_marks.cpp
  void check_mark(size_t index, const void* gradient) const;
  std::byte* storage_of(const Param& param) const {
    return memory_.units().buffer(param.unit) + param.offset;
  }
  int32_t dtype_of(size_t index) const { return list_.tensors[index].dtype; }  // of the view
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
