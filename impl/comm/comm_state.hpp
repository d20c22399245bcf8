// The state of a communicator on this rank, independent of its engine: identity, members, and a state
// machine. The state is open, failed, finalized or left. This class also makes the error messages for calls
// in the last three states.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/mutex.hpp"
#include "comm/nonfinite.hpp"
#include "comm/scratch.hpp"
#include "control/call.hpp"
#include "control/group.hpp"

namespace dsc {

class GroupEngine;

// Results of start-up that later calls need.
struct WorldInfo {
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string master_addr;
  int master_port = 0;
  std::string source;
  std::string report;
  bool progress_thread = true;  // if false, only calls of the program drive operations
};

// The members of a communicator on this host.
struct LocalMembers {
  std::shared_ptr<Group> group;
  std::vector<int32_t> ranks;  // rank of each of these members in the communicator
};

struct CommIdentity {
  uint64_t id = 0;
  std::string name;
  int rank = 0;
  std::vector<int32_t> global_ranks;  // for each rank of this group, its rank in the world
};

class CommState {
 public:
  CommState(CommIdentity identity, LocalMembers local, std::shared_ptr<const WorldInfo> info, int timeout_ms);
  CommState(const CommState&) = delete;
  CommState& operator=(const CommState&) = delete;

  uint64_t id() const noexcept { return identity_.id; }
  const std::string& name() const noexcept { return identity_.name; }
  int rank() const noexcept { return identity_.rank; }
  int size() const noexcept { return static_cast<int>(identity_.global_ranks.size()); }
  const std::vector<int32_t>& global_ranks() const noexcept { return identity_.global_ranks; }
  int group_rank(int global_rank) const noexcept;
  const LocalMembers& local() const noexcept { return local_; }
  HostGroup& host() const noexcept { return *host_; }
  const std::shared_ptr<const WorldInfo>& info() const noexcept { return info_; }

  int timeout_ms() const noexcept { return timeout_ms_.load(std::memory_order_relaxed); }
  int timeout_ms(const Call& call) const noexcept {
    return call.timeout_ms > 0 ? call.timeout_ms : timeout_ms();
  }
  void set_timeout_ms(int timeout) noexcept { timeout_ms_.store(timeout); }

  // Returns an id for a new group or new memory. It is equal on all ranks if they create these in the same
  // order.
  uint64_t next_id() noexcept;
  // Returns a default name for a new group: the name of this communicator and the number of its latest child.
  std::string child_name() const;

  // --- The state machine. These functions may be called from any thread.

  // Returns false if the rank has already left.
  bool leave() noexcept { return !left_.exchange(true); }
  bool left() const noexcept { return left_.load(); }
  void set_finalized() noexcept { finalized_.store(true); }
  bool finalized() const noexcept { return finalized_.load(); }
  // Returns true if the communicator was finalized or left, or its world has ended. The function is inline,
  // because every operation calls it.
  bool is_closed() const noexcept { return left() || finalized() || (host_ && host_->ended()); }
  // Same as is_closed(), but also returns true while this rank finalizes the world, because it then takes
  // part in no more operations.
  bool has_left_or_finalizes() const noexcept {
    return is_closed() || (local_.group && local_.group->has_left(local_.group->rank()));
  }
  // Records that the program knows the communicator's failure, because a call has reported it or because the
  // program caused it. Later calls, on host memory and on devices, then get REVOKED instead of the cause. A
  // failure that only a thread of the library knows is not recorded. Returns false if it was already
  // recorded.
  bool note_reported() noexcept { return !reported_.exchange(true); }
  bool reported() const noexcept { return reported_.load(); }
  // Counts calls of abort() on this rank. Each also ends a running agree_on() or shrink().
  void note_abort() noexcept { aborts_.fetch_add(1); }
  uint64_t aborts() const noexcept { return aborts_.load(); }

  void expect_open() const;  // throws STATE if has_left_or_finalizes()

  // Returns the failure for a call that cannot run. The code is STATE if this rank takes part in no more
  // operations; otherwise it is REVOKED, with the text of `cause`.
  Failure refusal(const Failure& cause) const noexcept;
  // Return the cause of a failure of the group: aborted() if this rank aborts it, destroyed() if this rank
  // leaves while operations are running.
  Failure aborted() const noexcept;
  Failure destroyed() const noexcept;
  // Changes `failure` to the failure of an operation. Its text becomes "collective 3 (all_reduce) of group
  // "world" on rank 1 of 4: TEXT". If another operation failed first, the text names it: "collective 2
  // (broadcast) failed: TEXT".
  void name_operation(Failure& failure, const char* operation, uint64_t sequence) const noexcept;
  // Returns a text such as "rank 1 (pid 4711)" for this rank.
  FixedText<64> describe_self() const noexcept;

  // Channels are internal groups that fail, and are left, together with this communicator.
  void add_channel(const std::shared_ptr<GroupEngine>& channel);
  void fail_channels(const Failure& cause) noexcept;
  void leave_channels() noexcept;

  // The ranks that did not take part in the latest agree_on() or shrink(). The list is equal on all ranks.
  void set_missing(std::vector<int32_t> ranks);
  std::vector<int32_t> missing() const;

  // The check for NaNs and infinities, and its totals. Never null. An internal group may share this object
  // with the communicator that it works for.
  std::shared_ptr<NonFiniteLedger> nonfinite = std::make_shared<NonFiniteLedger>(NonFiniteCheck::kOff);

  // Temporary memory for calls. Never null. The memory is kept until the group is destroyed.
  const std::shared_ptr<Scratch> scratch = std::make_shared<Scratch>();

 private:
  const char* why_closed() const noexcept;
  Failure caused_here(const char* operation, const char* what) const noexcept;
  std::vector<std::shared_ptr<GroupEngine>> channels() const;

  const CommIdentity identity_;
  const LocalMembers local_;
  HostGroup* const host_;  // null if there is no local group, as in tests
  const std::shared_ptr<const WorldInfo> info_;
  std::atomic<int> timeout_ms_;
  std::atomic<bool> left_{false};
  std::atomic<bool> finalized_{false};
  std::atomic<bool> reported_{false};
  std::atomic<uint64_t> aborts_{0};
  std::atomic<uint64_t> children_{0};
  mutable Mutex mutex_;
  std::vector<std::weak_ptr<GroupEngine>> channels_ DSC_GUARDED_BY(mutex_);
  std::vector<int32_t> missing_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
