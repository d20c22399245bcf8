// Sharded data parallelism (ZeRO 1 to 3, FSDP). Every rank keeps one part of the gradients and of the
// optimizer's state. In stage 3, it also keeps only one part of the parameters.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "bucket_plan/shard_copies.hpp"
#include "bucket_plan/shard_layout.hpp"
#include "comm/comm.hpp"
#include "comm/tensor.hpp"
#include "sharded/gradient_shards.hpp"
#include "sharded/parameter_shards.hpp"
#include "sharded/shard_groups.hpp"

namespace dsc {

struct ShardedOptions {
  ShardRules rules;                // create() sets its number of shards
  std::span<const uint8_t> alone;  // by parameter: 1 if it forms a unit alone; may be empty
  // Limit for full parameters, and also for full gradients; 0 means no limit.
  size_t max_live_bytes = 0;
  int32_t stage = 2;
  int32_t average = DSC_AVERAGE_PRE;
  int32_t grad_dtype = 0;  // 0 means the type of each parameter
  int32_t shard_size = 0;  // number of ranks that share one copy of the model; 0 means all
  int32_t prefetch = 1;    // number of units to gather ahead in stage 3
  int32_t sync = 1;
};

// The plan that create() computes. It is equal on all ranks.
struct ShardedPlan {
  std::vector<ShardTensor> tensors;
  ShardLayout layout;
  std::vector<int32_t> grad_dtypes;  // types of gradients, by bucket
};

// Only one thread at a time may call functions that are not marked "any thread". `in_call` detects a second
// thread.
class Sharded {
 public:
  // Collective. Errors in options or parameters are the same on all ranks, and `comm` stays usable.
  static std::shared_ptr<Sharded> create(Comm& comm, std::span<const Tensor> params,
                                         const ShardedOptions& options);

  Sharded(Comm& comm, std::span<const Tensor> params, ShardedPlan plan, const ShardedOptions& options);
  ~Sharded();
  Sharded(const Sharded&) = delete;
  Sharded& operator=(const Sharded&) = delete;

  // For parameters in host memory, `stream` must be null.
  void begin(bool adds, void* stream);
  void finish(void* stream);  // collective
  // Collective. Multiplies the gradients by `scale`, and then limits their norm to `max_norm`. Returns the
  // norm after scaling and before limiting.
  double clip(double max_norm, double scale, void* stream);
  void step_done(bool changed, void* stream);
  void unshard(size_t unit);
  void wait(size_t unit, void* stream);
  void reshard(size_t unit, void* stream);

  // --- The following functions may be called from any thread.
  void accumulate(size_t index, const void* gradient, int32_t dtype, void* stream);
  void mark_ready(size_t index, const void* gradient, int32_t dtype, void* stream);
  void mark_unused(size_t index);
  void* param_view(size_t index) const;
  void* grad_view(size_t index) const;
  std::byte* param_shard(size_t bucket) const { return params_->shard(bucket); }
  Elements grad_shard(size_t bucket) const { return gradients_->shard(bucket); }
  size_t shard() const noexcept { return groups_.shard(); }
  const ShardLayout& layout() const noexcept { return plan_.layout; }
  const std::vector<ShardTensor>& tensors() const noexcept { return plan_.tensors; }
  HeldBytes held_params() const { return params_->held(); }
  HeldBytes held_gradients() const { return gradients_->held(); }
  std::vector<OpStats> stats() const { return groups_.stats(); }
  // Ends this rank's participation, but does not free memory. Running operations are revoked on all ranks.
  void close() noexcept;
  bool is_closed() const noexcept { return closed_.load(); }

  std::atomic<bool> in_call{false};

 private:
  void check_index(size_t index) const;
  void set_initial_values(std::span<const Tensor> params, bool sync);
  std::vector<Elements> grad_shards() const;

  const ShardedPlan plan_;
  ShardGroups groups_;
  std::unique_ptr<GradientShards> gradients_;
  std::unique_ptr<ParameterShards> params_;
  bool needs_step_ = false;  // gradients were reduced, but step_done() was not called yet
  std::atomic<bool> closed_{false};
};

}  // namespace dsc
