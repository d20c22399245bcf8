// The communicator of the host engine, for ranks of one host.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "comm/comm.hpp"
#include "comm/stats.hpp"
#include "control/consensus.hpp"
#include "control/group.hpp"
#include "engine_host/op_queue.hpp"

namespace dsc {

class HostComm final : public Comm, public std::enable_shared_from_this<HostComm> {
 public:
  // Collective: all ranks of the world call this, and the group is ready for use afterwards.
  static std::shared_ptr<HostComm> create_world(const std::shared_ptr<Group>& group, int timeout_ms,
                                                Deadline deadline);
  // All members must have mapped the group.
  explicit HostComm(std::shared_ptr<Group> group, int timeout_ms);
  ~HostComm() override;

  int rank() const noexcept override { return group_->rank(); }
  int size() const noexcept override { return group_->size(); }
  uint64_t id() const noexcept override { return group_->id(); }
  const std::string& name() const noexcept override { return group_->name(); }
  int global_rank(int group_rank) const override;
  int group_rank(int global_rank) const noexcept override;

  void run(const Call& call) override;
  std::shared_ptr<Work> start(const Call& call) override;
  void restart_numbers() noexcept override {
    collectives_.restart_numbers();
    local_operations_ = 0;
  }
  std::shared_ptr<Comm> split(int32_t color, int32_t key, const GroupOptions& options) override;
  std::shared_ptr<Comm> create_group(std::span<const int32_t> ranks, const GroupOptions& options) override;
  std::shared_ptr<Comm> make_channel(const std::string& name) override;
  int32_t agree_on(int32_t flags) override;
  std::shared_ptr<Comm> shrink(const GroupOptions& options) override;
  std::vector<int32_t> missing() const override;
  std::shared_ptr<Comm> successor() const noexcept override;
  void* allocate_memory(size_t bytes) override;

  bool progress(Deadline deadline) override;

  int timeout_ms() const noexcept override { return timeout_ms_.load(); }
  void set_timeout_ms(int timeout) noexcept override { timeout_ms_.store(timeout); }
  void revoke(const Failure& cause) noexcept override;
  void abort() noexcept override;
  void leave() noexcept override;
  void leave_if_idle() noexcept override;
  bool finalized() const noexcept override { return finalized_.load(); }
  void finalize() override;
  void end_world() noexcept override { world().end(); }
  Failure failure() const override;
  bool revoked() const noexcept override { return group_->revoked(); }
  bool is_over() const noexcept override;
  LocalMembers local_members() const override;
  std::vector<OpStats> stats() const override { return stats_.read(); }
  std::string trace(const char* reason) const override;
  std::string trace_path() const override;
  std::string tuning() const override { return tuning_text(group_->tuning()); }
  const WorldInfo& world_info() const noexcept override { return *info_; }
  void set_world_info(std::shared_ptr<const WorldInfo> info) noexcept { info_ = std::move(info); }

  // The following functions are for queues and for other engines.
  Group& group() noexcept { return *group_; }
  World& world() noexcept { return group_->world(); }
  Notifier& notifier() noexcept { return group_->world().process().notifier(); }
  int spins() const noexcept { return sleeps_soon_.load() ? Backoff::kSleepSoon : group_->world().spins(); }
  // Called for a part of a larger group: its ranks mostly wait for other hosts, so spinning is not
  // worthwhile.
  void sleep_soon() noexcept { sleeps_soon_.store(true); }
  int timeout_ms(const Call& call) const noexcept {
    return call.timeout_ms > 0 ? call.timeout_ms : timeout_ms_.load(std::memory_order_relaxed);
  }
  // Returns the world if its operations progress only inside calls of the program; null if the progress
  // thread drives them.
  World* self_driven() const noexcept { return info_->progress_thread ? nullptr : &group_->world(); }
  std::shared_ptr<HostComm> share() { return shared_from_this(); }

  // True if new operations are refused: a call has reported the failure to this rank, or this rank has
  // left.
  bool refuses() const noexcept;
  Failure refusal(const Operation& operation) const noexcept;
  void begin() noexcept { running_.fetch_add(1); }
  void end() noexcept { running_.fetch_sub(1); }
  // Records and counts an operation that is over; returns its failure, if any.
  std::optional<Failure> settle(Operation& operation, Progress progress) noexcept;

 private:
  void release_name() noexcept;
  std::vector<OpQueue*> message_queues();
  void drain_messages();
  bool is_alone() const noexcept;
  bool has_running() noexcept;
  OpQueue& queue_for(const Call& call);
  std::string describe_failure(OpKind kind, uint64_t sequence, const std::string& text) const;
  std::optional<Failure> run_locally(const Call& call);
  void move_locally(const Call& call, const Transfer& transfer, Failure& failure);
  Failure described_refusal(const Operation& operation) const;
  Record record_locally(const Call& call, const Transfer& transfer, int64_t now) noexcept;
  std::vector<std::byte> gather(OpKind kind, const void* mine, size_t bytes, uint64_t tag,
                                const std::string& note);
  void agree(OpKind kind, dsc_result_t code, const std::string& text, uint64_t tag, const std::string& note);
  std::shared_ptr<Comm> make_group(OpKind kind, uint64_t tag, const std::string& note,
                                   std::vector<int32_t> members, uint64_t id, const GroupOptions& options);
  std::shared_ptr<HostComm> make_child(std::shared_ptr<Group> group, const GroupOptions& options) const;
  std::shared_ptr<Group> map_group(OpKind kind, uint64_t tag, const std::string& note,
                                   const std::function<std::shared_ptr<Group>()>& create);
  struct Recovery;
  void begin_recovery();
  Decision decide(const Ballot& ballot, const Recovery& call);
  Ballot map_survivors(const Decision& decision, std::string name, const GroupOptions& options,
                       const Recovery& call, std::shared_ptr<HostComm>& child);
  void adopt(const std::shared_ptr<HostComm>& child) noexcept;
  // True if this rank takes part in no further operation of this communicator.
  bool over() const noexcept { return is_over() || group_->has_left(rank()); }
  const char* why_over() const noexcept;
  uint64_t next_id() noexcept;
  void check_parent() const;

  const std::shared_ptr<Group> group_;
  std::atomic<int> timeout_ms_;
  OpQueue collectives_{*this};
  Mutex queues_mutex_;
  std::map<int32_t, OpQueue> send_queues_ DSC_GUARDED_BY(queues_mutex_);
  std::map<int32_t, OpQueue> recv_queues_ DSC_GUARDED_BY(queues_mutex_);
  Mutex channels_mutex_;
  std::vector<std::weak_ptr<Comm>> channels_ DSC_GUARDED_BY(channels_mutex_);
  std::atomic<bool> reported_{false};  // a call on this rank has reported the failure
  std::atomic<bool> sleeps_soon_{false};
  std::atomic<bool> left_{false};
  std::atomic<bool> finalized_{false};
  std::atomic<int> running_{0};  // operations that were queued and have not ended
  std::atomic<uint64_t> children_{0};
  uint64_t local_operations_ = 0;  // counted in a group of one only
  Consensus consensus_{*group_};
  std::atomic<uint64_t> aborts_{0};  // calls of abort() on this rank; each also ends a running recovery
  bool replaces_world_ = false;      // descends from the world by shrink() alone
  // The number of shrinks in this family of communicators; all communicators that shrink() has made from
  // one another share it.
  std::shared_ptr<std::atomic<int>> shrinks_ = std::make_shared<std::atomic<int>>(0);
  mutable Mutex recovery_mutex_;
  std::vector<int32_t> missing_ DSC_GUARDED_BY(recovery_mutex_);
  std::weak_ptr<HostComm> successor_ DSC_GUARDED_BY(recovery_mutex_);
  StatsTable stats_;
  std::shared_ptr<const WorldInfo> info_ = std::make_shared<WorldInfo>();
};

}  // namespace dsc
