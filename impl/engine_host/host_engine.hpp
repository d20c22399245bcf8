// The engine for ranks of one host, which share memory.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/engine.hpp"
#include "control/consensus.hpp"
#include "control/group.hpp"
#include "engine_host/op_queue.hpp"

namespace dsc {

class HostEngine final : public GroupEngine, public std::enable_shared_from_this<HostEngine> {
 public:
  // Collective: all ranks of the host call this, and the engine is ready for use afterwards.
  static std::shared_ptr<HostEngine> create_world(const std::shared_ptr<Group>& group,
                                                  std::shared_ptr<const WorldInfo> info, int timeout_ms,
                                                  Deadline deadline);
  // All members must have mapped the group.
  HostEngine(const std::shared_ptr<Group>& group, std::shared_ptr<const WorldInfo> info, int timeout_ms);
  ~HostEngine() override { leave(); }

  int32_t backend() const noexcept override { return DSC_BACKEND_HOST; }
  bool checks_nonfinite() const noexcept override { return true; }

  void run(const Call& call) override;
  std::shared_ptr<Work> start(const Call& call) override;
  void* allocate(size_t bytes) override;
  void register_memory(void* memory, size_t bytes) override;
  bool has_running() noexcept override;
  void finalize() override;

  bool progress(Deadline deadline) override;
  void restart_sequence() noexcept override {
    collectives_.restart_sequence();
    local_operations_ = 0;
  }
  void revoke(const Failure& cause) noexcept override;
  bool revoked() const noexcept override { return group_->revoked(); }
  Failure failure() const override;
  void leave() noexcept override;
  void leave_if_idle() noexcept override;
  std::shared_ptr<GroupEngine> make_group(const NewGroup& wanted) override { return make_part(wanted); }
  int32_t agree_on(int32_t flags) override;
  std::shared_ptr<GroupEngine> shrink(const GroupOptions& options) override;

  // --- For queues and for other engines.
  std::shared_ptr<HostEngine> make_part(const NewGroup& wanted);
  Group& group() noexcept { return *group_; }
  HostGroup& host() noexcept { return group_->host(); }
  Notifier& notifier() noexcept { return group_->host().process().notifier(); }
  int spins() const noexcept { return sleeps_soon_.load() ? Backoff::kSleepSoon : group_->host().spins(); }
  // Called for a part of a larger group. Its ranks mostly wait for other hosts, so spinning is not
  // worthwhile.
  void sleep_soon() noexcept { sleeps_soon_.store(true); }
  // Returns the host group if operations progress only inside calls of the program; null if the progress
  // thread drives them.
  HostGroup* self_driven() const noexcept {
    return state.info()->progress_thread ? nullptr : &group_->host();
  }
  std::shared_ptr<HostEngine> share() { return shared_from_this(); }

  // True if new operations are refused: a call has reported the failure to this rank, or this rank has left.
  // An operation calls this when has_running() already counts it. Waits while leave_if_idle() decides whether
  // this rank leaves.
  bool refuses() const noexcept {
    if (leaving_.load()) leaving_.wait(true);
    return state.has_left_or_finalizes() || (state.reported() && group_->revoked());
  }
  Failure refusal(const Operation& operation) const noexcept;
  void begin() noexcept { running_.fetch_add(1); }
  void end() noexcept { running_.fetch_sub(1); }
  // Records and counts an operation that has ended; returns its failure, if any.
  std::optional<Failure> finish(Operation& operation, Progress progress) noexcept;

 private:
  void release_name() noexcept;
  std::vector<OpQueue*> message_queues();
  void drain_messages();
  bool is_alone() noexcept;
  OpQueue& queue_for(const Call& call);
  void name_operation(Failure& failure, OpKind kind, uint64_t sequence) const noexcept;
  void run_locally(const Call& call);
  [[noreturn]] void fail_locally(const Call& call, Record& record, int64_t start, Failure failure);
  void move_checked(const Call& call, const Transfer& transfer);
  Record record_locally(const Call& call, const Transfer& transfer, int64_t now) noexcept;
  std::shared_ptr<Group> map_group(const NewGroup& wanted,
                                   const std::function<std::shared_ptr<Group>()>& create);
  void check_parent() const;
  struct SharedMemory;
  std::shared_ptr<Allocation> share_segments(const SharedMemory& wanted);
  struct Recovery;
  Decision decide(const Ballot& ballot, const Recovery& call);
  Ballot map_survivors(const Decision& decision, std::string name, const GroupOptions& options,
                       const Recovery& call, std::shared_ptr<HostEngine>& child);
  void adopt(HostEngine& child) noexcept;

  const std::shared_ptr<Group> group_;
  OpQueue collectives_{*this};
  Mutex queues_mutex_;
  // The queues by peer. For each peer, the queue of sends precedes the queue of receives. A message finds its
  // queue here without taking the lock.
  std::vector<std::atomic<OpQueue*>> queues_by_peer_;
  std::map<int32_t, OpQueue> send_queues_ DSC_GUARDED_BY(queues_mutex_);
  std::map<int32_t, OpQueue> recv_queues_ DSC_GUARDED_BY(queues_mutex_);
  std::atomic<bool> sleeps_soon_{false};
  std::atomic<bool> leaving_{false};  // true while leave_if_idle() checks whether operations run
  std::atomic<int> running_{0};       // operations that were queued and have not ended
  uint64_t local_operations_ = 0;     // counted in a group of one rank only
  Consensus consensus_{*group_};
  bool replaces_world_ = false;  // true if this was made from the world only by calls of shrink()
  // The number of shrinks so far. A communicator shares this number with all communicators made from it by
  // shrink(), directly or indirectly.
  std::shared_ptr<std::atomic<int>> shrinks_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace dsc
