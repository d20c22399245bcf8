#include "reducer/rebuild.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "comm/gather.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

constexpr int kIterationsToRebuildAgain = 3;

constexpr uint64_t kVoteTag = 0x72656275;

// The vote of one rank on whether to rebuild the buckets.
struct Vote {
  int32_t pinned;  // the caller of this rank has views of the current buckets
  int32_t wanted;  // set by rank 0 if it wants to rebuild
};

// Collective. Returns rank 0's plan for n parameters on all ranks.
BucketPlan plan_of_rank_0(Comm& group, const BucketPlan& plan, size_t n) {
  std::vector<uint64_t> words(2 * n + 1);
  std::ranges::copy(plan.indices, words.begin());
  std::ranges::copy(plan.starts, words.begin() + static_cast<std::ptrdiff_t>(n));
  Call call =
      call_of_bytes(OpKind::kBroadcast, 0, words.data(), words.data(), words.size() * sizeof words[0]);
  std::snprintf(call.note, sizeof call.note, "order of buckets");
  group.run(call);
  BucketPlan agreed;
  agreed.indices.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(n));
  for (size_t at = n; at < words.size(); ++at) {
    agreed.starts.push_back(words[at]);
    if (words[at] == n) break;
  }
  return agreed;
}

bool same(const BucketPlan& a, const BucketPlan& b) { return a.indices == b.indices && a.starts == b.starts; }

}  // namespace

// Plans buckets for the order in which gradients became ready. Without small_bucket_first, buckets are
// planned backward from the last gradient and their list is reversed, as PyTorch does with
// DDP_SET_LAST_BUCKET_CAP=1. The last bucket is then the small one.
BucketPlan Rebuilder::plan(const ParamList& params, std::span<const size_t> order) const {
  std::vector<PlanTensor> tensors;
  for (const Tensor& param : params.tensors)
    tensors.push_back(
        {param.count, dtype_bytes(param.dtype), param.dtype, param.device, param.expect_sparse == 1});
  const std::array<size_t, 2> limits{options_.first_bucket_bytes, options_.bucket_bytes};
  if (options_.small_bucket_first) return plan_buckets(tensors, order, limits);
  const std::vector<size_t> from_last(order.rbegin(), order.rend());
  return reversed(plan_buckets(tensors, from_last, limits));
}

// The first rebuild needs one iteration with a different plan. Later ones need the same plan in several
// consecutive iterations, so that one unusual iteration does not move all gradients.
bool Rebuilder::wants(const BucketPlan& plan, const BucketPlan& current) {
  if (same(plan, current)) {
    candidate_seen_ = 0;
    return false;
  }
  if (count() == 0) return true;
  candidate_seen_ = same(plan, candidate_) ? candidate_seen_ + 1 : 1;
  candidate_ = plan;
  return candidate_seen_ >= kIterationsToRebuildAgain;
}

std::unique_ptr<BucketSet> Rebuilder::propose(Comm& group, const ParamList& params, const BucketSet& current,
                                              std::span<const size_t> order, bool pinned) {
  const bool has_choice = params.size() > 1;
  if (!possible_ || !has_choice || settled_ || options_.rebuild == DSC_REBUILD_NEVER) return nullptr;
  BucketPlan mine = plan(params, order);
  const Vote vote{pinned ? 1 : 0, group.rank() == 0 && wants(mine, current.layout.plan) ? 1 : 0};
  const auto votes = gather_all(group, OpKind::kVerify, kVoteTag, vote, "rebuilding of buckets");
  settled_ = options_.rebuild == DSC_REBUILD_ONCE;
  const bool is_pinned = std::ranges::any_of(votes, [](const Vote& each) { return each.pinned != 0; });
  if (is_pinned || votes[0].wanted == 0) return nullptr;
  const BucketPlan agreed = plan_of_rank_0(group, mine, params.size());
  BucketLayoutOptions layout;
  layout.part_alignment = current.layout.part_alignment;
  layout.indices = agreed.indices;
  layout.starts = agreed.starts;
  auto set =
      std::make_unique<BucketSet>(group, params, make_bucket_layout(params.tensors, layout), current.average);
  ++count_;
  candidate_seen_ = 0;
  return set;
}

}  // namespace dsc
