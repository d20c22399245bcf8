// Rebuilds buckets in the order in which gradients become ready, as PyTorch's DistributedDataParallel does
// after its first iteration.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "reducer/bucket_set.hpp"

namespace dsc {

struct RebuildOptions {
  int32_t rebuild = DSC_REBUILD_ONCE;
  size_t bucket_bytes = 0;
  size_t first_bucket_bytes = 0;
  bool small_bucket_first = false;
};

// One thread at a time.
class Rebuilder {
 public:
  // `possible` is false for a reducer whose buckets were given by the caller; equal on all ranks.
  Rebuilder(const RebuildOptions& options, bool possible) : options_(options), possible_(possible) {}
  Rebuilder(const Rebuilder& fresh) : Rebuilder(fresh.options_, fresh.possible_) {}
  Rebuilder& operator=(const Rebuilder&) = delete;

  // Collective, at the end of a reduced iteration. Returns the new buckets if all ranks can rebuild and rank
  // 0 wants to, otherwise null. Rank 0's order counts. `pinned`: this rank has given views of the current
  // buckets to the caller.
  std::unique_ptr<BucketSet> propose(Comm& group, const ParamList& params, const BucketSet& current,
                                     std::span<const size_t> order, bool pinned);

  // How often buckets were rebuilt. Any thread.
  uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  BucketPlan plan(const ParamList& params, std::span<const size_t> order) const;
  bool wants(const BucketPlan& plan, const BucketPlan& current);

  const RebuildOptions options_;
  const bool possible_;
  bool settled_ = false;  // the only rebuild was done, or found impossible
  std::atomic<uint64_t> count_{0};
  BucketPlan candidate_;    // a plan that recent iterations suggested
  int candidate_seen_ = 0;  // number of consecutive iterations that suggested it
};

}  // namespace dsc
