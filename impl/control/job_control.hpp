// Control between the hosts of a job: who is gone, why a group failed, what ranks did last. One for each
// rank of a world of several hosts; everything goes through the job's store.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "bootstrap/rendezvous.hpp"
#include "control/job_watch.hpp"

namespace dsc {

// Called on the thread of a JobControl, one call after another, without a lock of its. All ranks hear the
// same causes and the same ends in the same order. What it throws is ignored.
class JobListener {
 public:
  virtual ~JobListener() = default;
  // Once for each group, also on the rank that published it.
  virtual void on_failure(uint64_t group_id, const Failure& cause) = 0;
  // Once for each rank: PEER_DEAD, PEER_LEFT or PEER_STALLED. One's own rank only as PEER_STALLED: the others
  // have given it up.
  virtual void on_gone(int32_t rank, dsc_result_t code, const std::string& text) = 0;
  // The first rank of a host has not been heard of for two seconds, or is again. Nothing has failed.
  virtual void on_quiet(int32_t rank, bool quiet) = 0;
  // What this rank did last in a group, or what the question, if it is not empty, asks for. In at most 512
  // bytes; the rest is cut.
  virtual std::string answer(uint64_t group_id, const std::string& question) = 0;
};

struct JobControlSettings {
  std::shared_ptr<JobStore> job;
  int32_t rank = 0;
  int32_t world_size = 1;
  std::vector<int32_t> leaders;     // one rank of each host, the same list on all ranks
  int64_t stall_timeout_ms = 0;     // 0: nobody is given up for being silent
  size_t log_bytes = kJobLogBytes;  // the same on all ranks
};

class JobControl final : private JobWatch::Client {
 public:
  // From now on the others learn of the end of this process within milliseconds, and it of theirs; also of
  // those before. `listener` outlives this. Throws PEER_DEAD (rank 0 went away), and what Channel throws.
  JobControl(JobControlSettings settings, JobListener& listener, Deadline deadline);
  // Waits only for a call of the listener's that runs. Without leave() the others take this rank for dead.
  ~JobControl() override = default;

  // Tells all ranks why a group failed, later if the store does not answer now. Returns the cause that holds:
  // the first one that any rank has published, or this one if the store does not answer. Any thread; within
  // two seconds.
  Failure publish(uint64_t group_id, const Failure& cause);

  // True for the first rank of the job that claims `what` for an operation of a group: it does for all what
  // one must do. Numbers of one group only go up. Also true if the store does not answer. Any thread; ends at
  // most about a second behind the deadline.
  bool claim(const char* what, uint64_t group_id, uint64_t number, Deadline deadline);

  // What each of `ranks` did last in a group, or what it answers to a question of at most 64 bytes, in the
  // same order; "no answer" of those that have not said so by the deadline, that are gone, and of all after
  // the first 64. Any thread but the listener's; as claim().
  std::vector<std::string> ask(uint64_t group_id, const std::vector<int32_t>& ranks,
                               const std::string& question, Deadline deadline);

  // No call of the listener's begins afterwards, and none runs unless this is called in one.
  void stop_listening() noexcept;
  // Also: this rank has gone in order, the others hear PEER_LEFT. Within two seconds if the store does not
  // answer. The store ends with rank 0, so that it waits until all others have heard it, for two seconds at
  // most.
  void leave() noexcept;

 private:
  void on_event(const JobEvent& event) override;
  void on_round() override;
  void on_server_quiet(bool quiet) override;
  void on_server_gone(dsc_result_t code, const std::string& text) override;
  void take(const RankGone& gone);
  void take(const RankQuiet& silence);
  void take(const GroupFailed& failed);
  void take(const LatestAsked& asked);
  bool set_gone(int32_t rank, dsc_result_t code);
  bool is_gone(int32_t rank);
  template <typename Call>
  void call_listener(Call call);
  void append(const JobEvent& event, Deadline deadline);
  void await_hearers(Deadline deadline);

  const JobControlSettings settings_;
  JobListener& listener_;
  Mutex mutex_;
  Condition changed_;
  std::vector<dsc_result_t> gone_ DSC_GUARDED_BY(mutex_);  // of each rank; DSC_OK: it is here
  bool deaf_ DSC_GUARDED_BY(mutex_) = false;
  bool calling_ DSC_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, Failure> untold_ DSC_GUARDED_BY(mutex_);  // by group: the store did not answer
  std::set<uint64_t> failed_;                                  // groups; on the watch's thread
  JobWatch watch_;                                             // last: it calls this
};

}  // namespace dsc
