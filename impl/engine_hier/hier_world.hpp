// The state that all communicators of one world over several hosts share: the store, the transport, and the
// news from other hosts.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.hpp"
#include "bootstrap/rendezvous.hpp"
#include "control/host_group.hpp"
#include "control/job_control.hpp"
#include "transport/transport_group.hpp"

namespace dsc {

class CommState;
class HierEngine;

class HierWorld final : private JobListener {
 public:
  // `address` is the address of this host at which its transport listens.
  HierWorld(std::shared_ptr<JobStore> job, JobLayout layout, std::string address)
      : layout_(std::move(layout)), address_(std::move(address)), job_(std::move(job)) {}
  ~HierWorld() override;

  // Must be called first. Afterwards the other ranks learn when this rank ends, and this rank learns when
  // they end. Throws what JobControl throws. `here` holds the ranks of this host.
  void begin_control(std::shared_ptr<const HostGroup> here, int64_t stall_timeout_ms, Deadline deadline);

  // Called when the world has been made on this rank. If start-up fails instead, this rank
  // ends by the start-up deadline at the latest, even if another rank was not yet ready to be informed.
  void end_start_up() noexcept { start_up_deadline_ = Deadline::never(); }

  const JobLayout& layout() const noexcept { return layout_; }
  Store& store() const noexcept { return job_->store(); }

  // The first call loads the transport's module and starts to listen. Throws NO_BACKEND and BACKEND.
  std::shared_ptr<Transport> transport();

  // If rank 0, which serves the store, is gone, throws the reason as a failure of a group.
  void expect_store(const CommState& state) const;

  // Removes a key of a transport group that failed to connect. The latest few keys are kept for some time,
  // because other hosts may still have to read them.
  void forget_later(const std::string& key) noexcept;
  // Tells the other hosts of a transport group why this host cannot take part.
  void refuse(const std::string& prefix, int own, const Error& why);

  // Registers a communicator, which from then on learns of failures, including earlier ones. It must be
  // removed with take_off() before it is destroyed; take_off() waits for a callback that is running.
  void enlist(HierEngine& engine);
  void take_off(HierEngine& engine) noexcept;

  // Publishes that the ranks in `gone` are gone, and then why a group failed. Returns the first cause that
  // any rank has published, or `cause` if the store does not answer.
  Failure publish(uint64_t group, const Failure& cause, const std::vector<RankGone>& gone);
  // Called when a group of this rank has failed.
  void note_failure() noexcept { behind_.store(true); }
  // Called before this rank leaves a group. The rank that made another group fail may also have made this
  // group fail. Without this call, ranks that wait for this rank would report its leaving as the cause.
  void catch_up() noexcept;
  // Announces to the other ranks that this rank takes part in no further operation of a group, so that ranks
  // that are about to connect to it do not wait. Does nothing if the other ranks cannot be reached or need
  // not know.
  void announce(const HierEngine& engine, const GroupLeft& left) noexcept;
  // Throws PEER_LEFT if that rank of a group has announced that it leaves the group.
  void expect_member(uint64_t group, int32_t rank) const;
  // Returns true for the first rank that claims `what` for an operation of a group. Also returns true if the
  // store does not answer.
  bool elect(const char* what, uint64_t group, uint64_t sequence, Deadline deadline) {
    return control_->elect(what, group, sequence, deadline);
  }
  std::vector<std::string> ask(uint64_t group, const std::vector<int32_t>& ranks, const std::string& question,
                               Deadline deadline) {
    return control_->ask(group, ranks, question, deadline);
  }
  // Returns for how many nanoseconds a leader, the first rank of its host, has been unresponsive; nullopt if
  // it is responsive.
  std::optional<int64_t> unresponsive_ns(int32_t rank) const;

  // Called when this rank leaves a world that has failed.
  void begin_closing() noexcept { job_->begin_closing(true); }
  // Called when all ranks are about to finalize: from now on the end of a rank is not a failure.
  void begin_end() noexcept;
  // Called when all ranks have met to finalize: the end of this rank is no longer reported to the others.
  void end_in_order() noexcept;

 private:
  void on_failure(uint64_t group, const Failure& cause) override;
  void on_gone(int32_t rank, dsc_result_t code, const std::string& text) override;
  void on_left(const GroupLeft& left) override;
  void on_unresponsive(int32_t rank, bool quiet) override;
  std::string answer(uint64_t group, const std::string& question) override;

  struct Gone {
    dsc_result_t code;
    std::string text;
  };
  using Departures = std::map<int32_t, GroupLeft>;  // by rank of the group
  static Failure failure_of(const CommState& state, int32_t rank, const Gone& gone);
  bool store_answers() const;
  bool is_worth_telling(const HierEngine& engine) const;
  std::deque<std::pair<uint64_t, Departures>>::iterator find_elsewhere(uint64_t group) DSC_REQUIRES(mutex_);
  template <typename Visit>
  void visit(uint64_t group, Visit call);

  const JobLayout layout_;
  const std::string address_;
  const std::shared_ptr<JobStore> job_;
  Deadline start_up_deadline_ = Deadline::never();
  std::atomic<bool> ended_in_order_{false};
  std::atomic<bool> behind_{false};            // a group has failed, and catch_up() was not called since
  std::atomic<int64_t> announces_from_ns_{0};  // a future time if the store has recently not answered
  mutable Mutex mutex_;
  Condition visited_;
  std::shared_ptr<Transport> transport_ DSC_GUARDED_BY(mutex_);
  std::map<uint64_t, HierEngine*> engines_ DSC_GUARDED_BY(mutex_);
  // The engine that the control's thread is calling; null if there is none.
  const HierEngine* visiting_ DSC_GUARDED_BY(mutex_) = nullptr;
  // The latest failures of all groups, also of groups that this rank may be about to make.
  std::deque<std::pair<uint64_t, Failure>> failed_ DSC_GUARDED_BY(mutex_);
  // The ranks that have left, by group. left_ covers the groups of this rank. left_elsewhere_ covers the
  // latest other groups, because this rank may be about to make one of them.
  std::map<uint64_t, Departures> left_ DSC_GUARDED_BY(mutex_);
  std::deque<std::pair<uint64_t, Departures>> left_elsewhere_ DSC_GUARDED_BY(mutex_);
  std::deque<std::string> kept_keys_ DSC_GUARDED_BY(mutex_);
  std::map<int32_t, Gone> gone_ DSC_GUARDED_BY(mutex_);
  std::map<int32_t, int64_t> unresponsive_since_ns_ DSC_GUARDED_BY(mutex_);
  std::unique_ptr<JobControl> control_;  // last member, because its thread calls this object
};

}  // namespace dsc
