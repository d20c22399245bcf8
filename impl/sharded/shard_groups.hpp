// The groups that sharded data parallelism uses. If one of them fails, all fail.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/guard.hpp"
#include "comm/comm.hpp"

namespace dsc {

// The ranks of one group of consecutive ranks hold the shards of one copy. Ranks at the same index of all
// these groups hold the same shard. Without hybrid sharding there is one copy, and its group has all ranks.
class ShardGroups {
 public:
  // Collective. `shards` divides the number of ranks.
  ShardGroups(Comm& comm, int shards);

  Comm& all() const noexcept { return *all_; }
  Comm& shards() const noexcept { return *shards_; }           // reductions of gradients, in their own order
  Comm& params() const noexcept { return *params_; }           // the same ranks: gathers of parameters
  Comm* replicas() const noexcept { return replicas_.get(); }  // null if there is one copy
  size_t shard() const noexcept { return static_cast<size_t>(shards_->rank()); }

  // --- Any thread.
  // Throws if a group has failed: the first time its cause, then REVOKED.
  void check_alive() const;
  bool revoked() const noexcept;
  // Runs a step whose operations are in `group`. If it fails and revokes the group, all groups fail with its
  // cause, so that ranks which wait in another group learn of it.
  template <typename Step>
  void run(Comm& group, const Step& step) const {
    capture(step, [&](const Error& error) { rethrow(group, error); });
  }
  [[noreturn]] void rethrow(Comm& group, const Error& error) const;
  // Converts the ranks of a failure in a group to those of the group of all ranks, which are the program's.
  Failure translated(const Comm& group, Failure failure) const;
  void abort() const noexcept;
  void leave() const noexcept;
  std::vector<OpStats> stats() const;

 private:
  std::vector<Comm*> list() const;
  bool has_all_ranks(const Comm& group) const noexcept;
  void spread(const Failure& cause) const noexcept;

  std::shared_ptr<Comm> all_;
  std::shared_ptr<Comm> shards_;
  std::shared_ptr<Comm> params_;
  std::shared_ptr<Comm> replicas_;
  mutable std::atomic<bool> reported_{false};
};

}  // namespace dsc
