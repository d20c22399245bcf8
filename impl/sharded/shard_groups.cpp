#include "sharded/shard_groups.hpp"

#include <cstring>

#include "base/error.hpp"

namespace dsc {
namespace {

constexpr char kOfAll[] = " of all ranks";

}  // namespace

ShardGroups::ShardGroups(Comm& comm, int shards) : all_(comm.split(0, comm.rank(), {"sharded", 0})) {
  const int rank = all_->rank();
  if (shards == all_->size()) {
    shards_ = all_;
  } else {
    shards_ = all_->split(rank / shards, rank, {"sharded.shards", 0});
    replicas_ = all_->split(rank % shards, rank, {"sharded.replicas", 0});
  }
  params_ = shards_->make_channel("sharded.params");
  for (Comm* group : list()) group->share_nonfinite(comm);
}

std::vector<Comm*> ShardGroups::list() const {
  std::vector<Comm*> groups{all_.get(), params_.get()};
  if (replicas_) groups.insert(groups.begin() + 1, {shards_.get(), replicas_.get()});
  return groups;
}

bool ShardGroups::revoked() const noexcept {
  return all_->revoked() || shards_->revoked() || params_->revoked() || (replicas_ && replicas_->revoked());
}

void ShardGroups::check_alive() const {
  if (!revoked()) return;
  for (const Comm* group : list()) {
    if (!group->revoked()) continue;
    const Failure failure = translated(*group, group->failure());
    spread(failure);
    if (is_group_fatal(failure.code) && !reported_.exchange(true)) throw Error(failure);
    fail_because_of(failure, DSC_ERR_REVOKED, "the sharded parameters were revoked: %s",
                    failure.text.c_str());
  }
}

Failure ShardGroups::translated(const Comm& group, Failure failure) const {
  if (has_all_ranks(group)) {
    // The group learned of this failure through another group.
    if (failure.sequence == 0) failure.set_group(all_->id(), all_->name());
    return failure;
  }
  RankList ranks;
  for (const int32_t rank : failure.ranks)
    if (rank >= 0 && rank < group.size()) ranks.push_back(all_->group_rank(group.global_rank(rank)));
  failure.ranks = ranks;
  failure.set_group(all_->id(), all_->name());  // the failure now names ranks of this group
  failure.sequence = 0;                         // the operation has no number in this group
  if (!ranks.empty() && !std::strstr(failure.text.c_str(), kOfAll))
    failure.text.add(" (rank %d%s)", failure.rank(), kOfAll);
  return failure;
}

bool ShardGroups::has_all_ranks(const Comm& group) const noexcept { return group.size() == all_->size(); }

// Fails all groups. The ranks in `cause` are those of the group of all ranks.
void ShardGroups::spread(const Failure& cause) const noexcept {
  for (Comm* group : {all_.get(), shards_.get(), params_.get(), replicas_.get()}) {
    if (!group || group->revoked()) continue;
    Failure own = cause;
    if (!has_all_ranks(*group)) {
      own.ranks = {};
      for (const int32_t rank : cause.ranks) {
        if (rank < 0 || rank >= all_->size()) continue;
        const int32_t member = group->group_rank(all_->global_rank(rank));
        if (member >= 0) own.ranks.push_back(member);
      }
    }
    group->revoke(own);
  }
}

void ShardGroups::rethrow(Comm& group, const Error& error) const {
  if (!revoked()) throw Error(error);
  // A lost rank is known to the group of all ranks, no matter in which group the operation was.
  const bool all_know = all_->revoked() && is_group_fatal(all_->failure().code);
  const Failure cause = all_know ? all_->failure() : translated(group, error.failure());
  spread(cause);
  reported_.store(true);
  throw Error(is_group_fatal(error.code()) ? translated(group, error.failure()) : cause);
}

void ShardGroups::abort() const noexcept {
  reported_.store(true);
  for (Comm* group : {all_.get(), shards_.get(), params_.get(), replicas_.get()})
    if (group && !group->revoked()) group->abort();
}

void ShardGroups::leave() const noexcept {
  for (Comm* group : {params_.get(), replicas_.get(), shards_.get(), all_.get()})
    if (group) group->leave();
}

std::vector<OpStats> ShardGroups::stats() const {
  std::vector<OpStats> stats;
  for (const Comm* group : list()) {
    for (OpStats& of : group->stats()) {
      if (group == params_.get()) of.operation += " (parameters)";
      if (group == replicas_.get()) of.operation += " (replicas)";
      stats.push_back(std::move(of));
    }
  }
  return stats;
}

}  // namespace dsc
