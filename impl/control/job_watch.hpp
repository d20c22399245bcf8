// The thread of one process that speaks with the server of its job: it hands on what is in the log, in order,
// says that it lives, and judges who is silent. The server carries out a will when its connection ends, so
// that all learn of a death at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "control/job_event.hpp"
#include "control/job_log.hpp"
#include "control/silence.hpp"
#include "store/channel.hpp"

namespace dsc {

struct JobWatchSettings {
  StoreTarget target;
  int32_t rank = 0;
  std::vector<int32_t>
      leaders;  // one rank of each host, which says that its host lives; rank 0 looks at them
  int32_t world_size = 1;
  int64_t stall_timeout_ms = 0;
  size_t log_bytes = kJobLogBytes;
};

class JobWatch {
 public:
  // Called on the watch's thread, while nothing is under way.
  class Client {
   public:
    virtual ~Client() = default;
    virtual void on_event(const JobEvent& event) = 0;
    // At least once a second; in a large job after as many milliseconds as it has ranks.
    virtual void on_round() = 0;
    // It does not answer, or does again.
    virtual void on_server_quiet(bool quiet) = 0;
    // PEER_STALLED: it does not answer for too long; PEER_DEAD: the connection has ended, and nothing else
    // comes.
    virtual void on_server_gone(dsc_result_t code, const std::string& text) = 0;
  };

  // Throws what Channel throws, and PEER_DEAD if there is no connection by the deadline.
  JobWatch(JobWatchSettings settings, Client& client, Deadline deadline);
  // Waits for a call of the client's that runs, and for nothing else.
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  bool runs_here() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }

  // Where others of this process append.
  JobLog& job_log() noexcept { return log_; }

  // Only in a call of the client's. Of at most 4 KiB. A store that refuses is no failure of anybody's: its
  // reply holds an error.
  StoreReply call(const StoreRequest& request);
  void append(const JobEvent& event);

 private:
  struct Leader {
    int32_t rank;
    int64_t beats;
    Silence silence;
  };

  StoreRequest will() const;
  void run();
  void follow_until(int64_t time_ns);
  void take_events(const StoreReply& reply);
  void make_round();
  void look_at_leaders();
  void look_at(Leader& leader, int64_t now);
  void tell_of_late_wills();
  StoreReply await_reply();
  void note_pace();
  void look_at_server();

  const JobWatchSettings settings_;
  const bool leads_;
  Client& client_;
  std::unique_ptr<Channel> channel_;
  std::atomic<bool> stopping_{false};
  JobLog log_;
  size_t read_ = 0;         // bytes of its present key
  std::string former_key_;  // the one before
  size_t former_read_ = 0;
  OwnPace pace_;
  Silence server_;
  std::vector<Leader> leaders_;  // that rank 0 looks at, as long as they are not gone
  int64_t next_look_ns_ = 0;
  std::thread thread_;
};

}  // namespace dsc
