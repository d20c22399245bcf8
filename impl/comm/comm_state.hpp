// What a communicator is on this rank, whatever its engine: its identity, its members, and its state machine.
// Ranks move from open to failed, finalized or left. This class words the refusal of later calls.
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

// Facts that start-up has found out, kept for later calls.
struct WorldInfo {
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string master_addr;
  int master_port = 0;
  std::string source;
  std::string report;
  bool progress_thread = true;  // if false, calls of the program drive all operations
};

// The members of a communicator that are on this host.
struct LocalMembers {
  std::shared_ptr<Group> group;
  std::vector<int32_t> ranks;  // rank in the communicator of each member
};

struct CommIdentity {
  uint64_t id = 0;
  std::string name;
  int rank = 0;
  std::vector<int32_t> global_ranks;  // by rank
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

  // Returns an id for a new group or memory; equal on all ranks if they make these in the same order.
  uint64_t next_id() noexcept;
  // Returns the name of a group for which the caller gives none: the name of this communicator and the number
  // of its latest child.
  std::string child_name() const;

  // --- The state machine. Any thread.
  // Returns false if the rank had left before.
  bool leave() noexcept { return !left_.exchange(true); }
  bool left() const noexcept { return left_.load(); }
  void set_finalized() noexcept { finalized_.store(true); }
  bool finalized() const noexcept { return finalized_.load(); }
  // Finalized, left, or its world has ended. Inline, because every operation checks this.
  bool is_closed() const noexcept { return left() || finalized() || (host_ && host_->ended()); }
  // True also if this rank finalizes the world and takes part in no further operation.
  bool has_left_or_finalizes() const noexcept {
    return is_closed() || (local_.group && local_.group->has_left(local_.group->rank()));
  }
  // Notes that a call of the program on this rank has reported the communicator's failure, or that the
  // program has caused the failure. Later calls, on host memory and on devices, then get REVOKED instead of
  // the cause. A failure that only a thread of the library knows does not count. Returns false if it was
  // noted before.
  bool note_reported() noexcept { return !reported_.exchange(true); }
  bool reported() const noexcept { return reported_.load(); }
  // Counts calls of abort() on this rank, each of which also ends a running agree or shrink.
  void note_abort() noexcept { aborts_.fetch_add(1); }
  uint64_t aborts() const noexcept { return aborts_.load(); }

  void expect_open() const;  // throws STATE if has_left_or_finalizes()

  // Returns why a call is refused: STATE if this rank takes part in no further operation, otherwise REVOKED
  // because of `cause`.
  Failure refusal(const Failure& cause) const noexcept;
  // Return the cause with which the group fails: aborted() if this rank aborts it, destroyed() if it leaves
  // while operations are running.
  Failure aborted() const noexcept;
  Failure destroyed() const noexcept;
  // Makes `failure` the failure of an operation, with the text "collective 3 (all_reduce) of group "world" on
  // rank 1 of 4: TEXT". If it names another operation, which failed first, the text says which: "collective 2
  // (broadcast) failed: TEXT".
  void name_operation(Failure& failure, const char* operation, uint64_t sequence) const noexcept;
  // Returns "rank 1 (pid 4711)" for this rank.
  FixedText<64> describe_self() const noexcept;

  // Internal groups that fail and are left together with this one.
  void add_channel(const std::shared_ptr<GroupEngine>& channel);
  void fail_channels(const Failure& cause) noexcept;
  void leave_channels() noexcept;

  // The ranks that did not take part in the latest agree or shrink, equally on all ranks.
  void set_missing(std::vector<int32_t> ranks);
  std::vector<int32_t> missing() const;

  // Never null. An internal group may share the ledger of the communicator for which it works.
  std::shared_ptr<NonFiniteLedger> nonfinite = std::make_shared<NonFiniteLedger>(NonFiniteCheck::kOff);

  // Never null. Its content is kept until the group is destroyed.
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
