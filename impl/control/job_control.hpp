// Coordination between the hosts of a job: which ranks are gone, why a group failed, and what ranks did last.
// Each rank of a world of several hosts has one JobControl. All communication uses the store of the job.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "bootstrap/rendezvous.hpp"
#include "control/job_watch.hpp"

namespace dsc {

// Callbacks of a JobControl. They run on its thread, one at a time, without a lock held. All ranks get the
// same causes and departures in the same order. Exceptions are ignored.
class JobListener {
 public:
  virtual ~JobListener() = default;
  // Called once per group, also on the rank that published the failure.
  virtual void on_failure(uint64_t group_id, const Failure& cause) = 0;
  // Called once per rank with PEER_DEAD, PEER_LEFT or PEER_STALLED. For this rank itself it is called only
  // with PEER_STALLED, which means that the other ranks have excluded it.
  virtual void on_gone(int32_t rank, dsc_result_t code, const std::string& text) = 0;
  // Called when a rank has left a group, also on the rank that left.
  virtual void on_left(const GroupLeft& left) = 0;
  // Called when the heartbeats of a leader have been missing for two seconds, and when they resume. The
  // leader is the first rank of a host, or another rank of the host if that one does not run. This is not a
  // failure.
  virtual void on_unresponsive(int32_t rank, bool unresponsive) = 0;
  // Returns the answer to `question`. If the question is empty, returns what this rank did last in a group.
  // The text is cut after 512 bytes.
  virtual std::string answer(uint64_t group_id, const std::string& question) = 0;
};

// Settings of a JobControl.
struct JobControlSettings {
  std::shared_ptr<JobStore> job;
  int32_t rank = 0;
  int32_t world_size = 1;
  std::vector<std::vector<int32_t>> hosts;  // the ranks of each host; must be equal on all ranks
  int64_t stall_timeout_ms = 0;             // 0 means that ranks are never excluded for being unresponsive
  size_t log_bytes = kJobLogBytes;          // must be equal on all ranks
  // Returns the ranks of this host that have been stopped for too long. All ranks of the job learn of them.
  std::function<std::vector<RankGone>()> stalled_here = [] { return std::vector<RankGone>{}; };
};

// One rank's connection to the control log of its job.
class JobControl final : private JobWatch::Client {
 public:
  // From now on, the other ranks learn of the end of this process within milliseconds, and this process
  // learns of the end of other ranks, even if they ended before. `listener` must outlive this object. Throws
  // PEER_DEAD if rank 0 has ended, and what Channel throws.
  JobControl(JobControlSettings settings, JobListener& listener, Deadline deadline);
  // The destructor waits only for a running call of the listener. Unless leave() was called, the other ranks
  // treat this rank as dead.
  ~JobControl() override = default;

  // First publishes that the ranks in `gone` are gone, and then why a group failed. With this order, a rank
  // that knows of the failure also knows which other groups are affected. If the store does not answer now,
  // the publication is repeated later.
  //
  // Returns the valid cause: the first one that any rank has published, or `cause` if the store does not
  // answer. Any thread may call this. Takes at most two seconds.
  Failure publish(uint64_t group_id, const Failure& cause, const std::vector<RankGone>& gone = {});

  // Returns once the listener knows everything that was published before this call. Any thread except the
  // listener's may call this. Ends at most about a second after the deadline, or earlier if the store does
  // not answer.
  void catch_up(Deadline deadline) noexcept;

  // Announces to all ranks that this rank leaves a group. Returns false if the store does not answer; then no
  // rank is informed. Any thread may call this. Takes at most two seconds.
  bool announce(const GroupLeft& left) noexcept;

  // Elects one rank of the job. Returns true for the first rank that claims `what` for an operation of a
  // group, and also if the store does not answer. Sequence numbers of a group must increase. Any thread may
  // call this. Ends at most about a second after the deadline.
  bool elect(const char* what, uint64_t group_id, uint64_t sequence, Deadline deadline);

  // Asks each of `ranks` a question of at most 64 bytes; an empty question asks what the rank did last in a
  // group. Returns the answers in the same order. The answer is "no answer" for ranks that are gone or do not
  // reply by the deadline, and for all ranks after the first 64. Any thread except the listener's may call
  // this. Ends at most about a second after the deadline.
  std::vector<std::string> ask(uint64_t group_id, const std::vector<int32_t>& ranks,
                               const std::string& question, Deadline deadline);

  // Called before ranks end in an orderly way. From now on, the end of a rank is not reported. Ranks that are
  // stopped are still reported.
  void ignore_ends() noexcept { ignores_ends_.store(true); }
  // Stops all calls of the listener. When this returns, no call is running, unless this function was called
  // inside one.
  void stop_listening() noexcept;
  // Announces an orderly departure, so that the other ranks get PEER_LEFT. Also stops listening. Takes at
  // most two seconds if the store does not answer. The store ends with rank 0. Rank 0 therefore waits until
  // all other ranks know, but at most two seconds and not beyond the deadline.
  void leave(Deadline deadline = Deadline::never()) noexcept;

 private:
  void on_event(const JobEvent& event) override;
  void on_round() override;
  void on_server_unresponsive(bool unresponsive) override;
  void on_server_gone(dsc_result_t code, const std::string& text) override;
  void take(const RankGone& gone);
  void take(const RankUnresponsive& event);
  void take(const GroupFailed& failed);
  void take(const LatestAsked& asked);
  void take(const GroupLeft& left);
  bool set_gone(int32_t rank, dsc_result_t code);
  bool is_gone(int32_t rank);
  template <typename Call>
  void call_listener(Call call);
  void append(const JobEvent& event, Deadline deadline);
  void await_acknowledgements(Deadline deadline);

  const JobControlSettings settings_;
  JobListener& listener_;
  std::atomic<bool> ignores_ends_{false};
  Mutex mutex_;
  Condition changed_;
  std::vector<dsc_result_t> gone_ DSC_GUARDED_BY(mutex_);  // by rank; DSC_OK while the rank is present
  bool stopped_listening_ DSC_GUARDED_BY(mutex_) = false;
  bool calling_ DSC_GUARDED_BY(mutex_) = false;
  // The causes that the store has not accepted yet, by group.
  std::map<uint64_t, Failure> unpublished_ DSC_GUARDED_BY(mutex_);
  std::set<uint64_t> failed_;  // groups that have failed; used only on the watch's thread
  JobWatch watch_;             // must be the last member, because its thread calls this object
};

}  // namespace dsc
