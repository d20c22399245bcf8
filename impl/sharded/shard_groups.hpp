// The groups of sharded data parallelism. If one of them fails, all fail.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/guard.hpp"
#include "comm/comm.hpp"

namespace dsc {

// The ranks are divided into groups of consecutive ranks. Each group holds one copy of the model, with one
// shard per rank. Ranks with the same index in these groups hold the same shard. Without hybrid sharding,
// there is a single copy, and its group contains all ranks.
class ShardGroups {
 public:
  // The constructor is collective. `shards` must divide the number of ranks.
  ShardGroups(Comm& comm, int shards);

  Comm& all() const noexcept { return *all_; }
  Comm& shards() const noexcept { return *shards_; }  // for reductions of gradients
  Comm& params() const noexcept { return *params_; }  // the same ranks as shards(); for gathers of parameters
  // Ranks with the same shard; null if there is one copy.
  Comm* replicas() const noexcept { return replicas_.get(); }
  size_t shard() const noexcept { return static_cast<size_t>(shards_->rank()); }

  // --- The following functions may be called from any thread.

  // check_alive() throws if a group has failed. The first call throws the cause, later calls throw REVOKED.
  void check_alive() const;
  bool revoked() const noexcept;
  // Runs a step whose operations are in `group`. If the step fails and revokes the group, all groups fail
  // with the same cause. Ranks that wait in another group then learn of the failure.
  template <typename Step>
  void run(Comm& group, const Step& step) const {
    capture(step, [&](const Error& error) { rethrow(group, error); });
  }
  [[noreturn]] void rethrow(Comm& group, const Error& error) const;
  // Converts the ranks that a failure names from ranks of `group` to ranks of the group of all ranks, which
  // are the ranks that the program knows.
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
