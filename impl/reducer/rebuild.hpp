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

// Only one thread at a time may use an object, except for count().
class Rebuilder {
 public:
  // If `possible` is false, buckets are never rebuilt, for example because they are user-defined. `possible`
  // must be equal on all ranks.
  Rebuilder(const RebuildOptions& options, bool possible) : options_(options), possible_(possible) {}
  Rebuilder(const Rebuilder& fresh) : Rebuilder(fresh.options_, fresh.possible_) {}
  Rebuilder& operator=(const Rebuilder&) = delete;

  // Collective, called at the end of each reduced iteration. Returns new buckets in rank 0's order if rank 0
  // wants to rebuild and no rank is pinned; otherwise returns null. `pinned` means that the caller has views
  // of the current buckets.
  std::unique_ptr<BucketSet> propose(Comm& group, const ParamList& params, const BucketSet& current,
                                     std::span<const size_t> order, bool pinned);

  // Returns how often buckets were rebuilt. May be called from any thread.
  uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  BucketPlan plan(const ParamList& params, std::span<const size_t> order) const;
  bool wants(const BucketPlan& plan, const BucketPlan& current);

  const RebuildOptions options_;
  const bool possible_;
  bool settled_ = false;  // no further rebuild is allowed
  std::atomic<uint64_t> count_{0};
  BucketPlan candidate_;    // the plan that the latest iteration suggested
  int candidate_seen_ = 0;  // number of consecutive iterations that suggested it
};

}  // namespace dsc
