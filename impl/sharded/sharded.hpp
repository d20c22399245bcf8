// Sharded data parallelism: every rank keeps one part of the gradients and of the optimizer's state, and in
// stage 3 also of the parameters (ZeRO 1 to 3, FSDP).
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
  ShardRules rules;                // its number of shards is set by create()
  std::span<const uint8_t> alone;  // one per parameter, or empty
  size_t max_live_bytes = 0;       // of full parameters and of full gradients; 0: no limit
  int32_t stage = 2;
  int32_t average = DSC_AVERAGE_PRE;
  int32_t grad_dtype = 0;  // 0: the parameters' types
  int32_t shard_size = 0;  // ranks that share one copy; 0: all
  int32_t prefetch = 1;    // units that are gathered ahead in stage 3
  int32_t sync = 1;
};

// What create() has determined, equal on all ranks.
struct ShardedPlan {
  std::vector<ShardTensor> tensors;
  ShardLayout layout;
  std::vector<int32_t> grad_dtypes;  // of the buckets
};

// One thread at a time calls functions that are not marked "any thread"; `in_call` enforces that.
class Sharded {
 public:
  // Collective. Errors in options or parameters are the same on all ranks and leave comm usable.
  static std::shared_ptr<Sharded> create(Comm& comm, std::span<const Tensor> params,
                                         const ShardedOptions& options);

  Sharded(Comm& comm, std::span<const Tensor> params, ShardedPlan plan, const ShardedOptions& options);
  ~Sharded();
  Sharded(const Sharded&) = delete;
  Sharded& operator=(const Sharded&) = delete;

  // `stream` is null for parameters in host memory.
  void begin(bool adds, void* stream);
  void finish(void* stream);  // collective
  // Collective: scales the gradients, then limits their norm; returns the norm between the two.
  double clip(double max_norm, double scale, void* stream);
  void step_done(bool changed, void* stream);
  void unshard(size_t unit);
  void wait(size_t unit, void* stream);
  void reshard(size_t unit, void* stream);

  // --- Any thread.
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
  // Ends this rank's part, and keeps the memory. Running operations are revoked on all ranks.
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
  bool needs_step_ = false;  // gradients were reduced, and step_done() was not called yet
  std::atomic<bool> closed_{false};
};

}  // namespace dsc
