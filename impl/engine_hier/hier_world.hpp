// What all communicators of one world over several hosts share: the store, the transport, and what is heard
// from other hosts.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.hpp"
#include "bootstrap/rendezvous.hpp"
#include "control/job_control.hpp"
#include "transport/transport_group.hpp"

namespace dsc {

class HierComm;

class HierWorld final : private JobListener {
 public:
  // `address`: of this host, where its wires listen.
  HierWorld(std::shared_ptr<JobStore> job, JobLayout layout, std::string address)
      : layout_(std::move(layout)), address_(std::move(address)), job_(std::move(job)) {}
  ~HierWorld() override;

  // First of all: the others hear of the end of this rank, and it of theirs. Throws what JobControl throws.
  void begin_control(int32_t rank, int64_t stall_timeout_ms, Deadline deadline);

  const JobLayout& layout() const noexcept { return layout_; }
  Store& store() const noexcept { return job_->store(); }

  // Loads the module and listens, the first time. Throws NO_BACKEND, BACKEND.
  std::shared_ptr<Transport> transport();

  // A key that others may have to read yet, of a wire that came to nothing. A few are kept at a time.
  void forget_later(const std::string& key) noexcept;
  // The other hosts of a wire hear why this one has no part in it.
  void refuse_wire(const std::string& prefix, int own, const Error& why);

  // Communicators that hear of failures, at once of those before. The caller takes itself off before it ends;
  // a call that runs is waited for.
  void enlist(HierComm& comm);
  void take_off(HierComm& comm) noexcept;

  // The first cause of a group's failure on all ranks, which is this one if it is the first.
  Failure publish(uint64_t group, const Failure& cause) { return control_->publish(group, cause); }
  // True for the first rank that claims `what` for an operation of a group, and if nobody can tell.
  bool claim(const char* what, uint64_t group, uint64_t number, Deadline deadline) {
    return control_->claim(what, group, number, deadline);
  }
  std::vector<std::string> ask(uint64_t group, const std::vector<int32_t>& ranks, const std::string& question,
                               Deadline deadline) {
    return control_->ask(group, ranks, question, deadline);
  }
  // For how long nothing has been heard of a rank, the first of its host; nothing if it is heard.
  std::optional<int64_t> quiet_ns(int32_t rank) const;

  // The world has failed and is left.
  void begin_closing() noexcept { job_->begin_closing(true); }
  // All ranks are about to end: from here on silence is no failure.
  void begin_end() noexcept;
  // All have met for the end: nobody is told of this rank's.
  void end_in_order() noexcept;
  void end() noexcept { ended_.store(true); }
  bool ended() const noexcept { return ended_.load(); }

 private:
  void on_failure(uint64_t group, const Failure& cause) override;
  void on_gone(int32_t rank, dsc_result_t code, const std::string& text) override;
  void on_quiet(int32_t rank, bool quiet) override;
  std::string answer(uint64_t group, const std::string& question) override;

  struct Gone {
    dsc_result_t code;
    std::string text;
  };
  static Failure failure_of(const HierComm& comm, int32_t rank, const Gone& gone);
  template <typename Visit>
  void visit(uint64_t group, Visit call);

  const JobLayout layout_;
  const std::string address_;
  const std::shared_ptr<JobStore> job_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> ended_in_order_{false};
  mutable Mutex mutex_;
  Condition visited_;
  std::shared_ptr<Transport> transport_ DSC_GUARDED_BY(mutex_);
  std::map<uint64_t, HierComm*> comms_ DSC_GUARDED_BY(mutex_);
  const HierComm* visiting_ DSC_GUARDED_BY(mutex_) = nullptr;  // on the control's thread
  // The latest ones: of groups that this rank may be about to make.
  std::deque<std::pair<uint64_t, Failure>> failed_ DSC_GUARDED_BY(mutex_);
  std::deque<std::string> kept_keys_ DSC_GUARDED_BY(mutex_);
  std::map<int32_t, Gone> gone_ DSC_GUARDED_BY(mutex_);
  std::map<int32_t, int64_t> quiet_since_ns_ DSC_GUARDED_BY(mutex_);
  std::unique_ptr<JobControl> control_;  // last: it calls this
};

}  // namespace dsc
