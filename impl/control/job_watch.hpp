// The thread of a process that communicates with the server of its job. It passes on the events of the log in
// order, sends heartbeats, and decides which ranks are unresponsive. Each process leaves a prepared event,
// its "will", at the server. The server publishes the will when the connection to the process ends, so that
// all ranks immediately learn of a death.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "control/heartbeat_watch.hpp"
#include "control/job_event.hpp"
#include "control/job_log.hpp"
#include "store/channel.hpp"

namespace dsc {

// Settings of a JobWatch.
struct JobWatchSettings {
  StoreTarget target;
  int32_t rank = 0;
  // The ranks of each host. The first rank of a host is its leader. It sends heartbeats, and rank 0 monitors
  // them. If the leader does not run or is gone, all ranks of the host send heartbeats.
  std::vector<std::vector<int32_t>> hosts;
  int32_t world_size = 1;
  int64_t stall_timeout_ms = 0;
  size_t log_bytes = kJobLogBytes;
};

// Owns the connection and the thread. Other threads may use only job_log(), has_read() and runs_here().
class JobWatch {
 public:
  // Callbacks on the watch's thread. They run while no request is in progress.
  class Client {
   public:
    virtual ~Client() = default;
    virtual void on_event(const JobEvent& event) = 0;
    // Called at least once per second. In a job of more than 1000 ranks, called at least once in n
    // milliseconds, where n is the number of ranks.
    virtual void on_round() = 0;
    // Called when the server does not answer, and when it answers again.
    virtual void on_server_unresponsive(bool unresponsive) = 0;
    // Called with PEER_STALLED if the server has not answered for too long, and with PEER_DEAD if the
    // connection has ended. After PEER_DEAD no event follows.
    virtual void on_server_gone(dsc_result_t code, const std::string& text) = 0;
  };

  // Throws PEER_DEAD if there is no connection by the deadline, and what Channel throws.
  JobWatch(JobWatchSettings settings, Client& client, Deadline deadline);
  // The destructor waits only for a running callback of the client.
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  bool runs_here() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }

  // The log to which other threads of this process append.
  JobLog& job_log() noexcept { return log_; }

  // Returns whether the client has received all events in the first `bytes` bytes of this key of the log. Any
  // thread may call this.
  bool has_read(uint64_t key_number, size_t bytes) const noexcept {
    return log_.number() > key_number || read_.load() >= bytes;
  }

  // May be called only inside a callback, with a request of at most 4 KiB. If the store refuses the request,
  // the reply contains the error.
  StoreReply call(const StoreRequest& request);
  void append(const JobEvent& event);

 private:
  // What rank 0 knows of a rank that sends heartbeats: the last count, and for how long heartbeats have been
  // missing.
  struct Monitored {
    int32_t rank;
    // The rank may still be starting, so heartbeats count as missing only after the first one.
    bool connects_later;
    HeartbeatWatch heartbeats;
    int64_t beats = 0;
  };

  StoreRequest will() const;
  void run();
  int64_t round_ns() const;
  void follow_until(int64_t time_ns);
  void take_events(const StoreReply& reply);
  void make_round();
  void check_heartbeats();
  void report_silence(Monitored& rank, int64_t now);
  void on_rank_gone(int32_t rank);
  void monitor_host_of(int32_t leader);
  bool is_monitored(int32_t rank) const;
  int64_t silent_ns(int32_t rank, int64_t now) const;
  void republish_unread_wills();
  StoreReply await_reply();
  void restart_watches_after_gap();
  void check_server();

  const JobWatchSettings settings_;
  Client& client_;
  std::unique_ptr<Channel> channel_;
  std::atomic<bool> stopping_{false};
  JobLog log_;
  std::atomic<size_t> read_{0};  // bytes of the current key whose events the client has received
  std::string former_key_;       // key of the log before the current one
  size_t former_read_ = 0;
  OwnPace pace_;
  HeartbeatWatch server_heartbeats_;
  bool beats_ = false;                // whether this rank sends heartbeats
  std::vector<Monitored> monitored_;  // ranks that rank 0 monitors, until they are gone
  std::set<int32_t> gone_;
  int64_t next_check_ns_ = 0;
  std::thread thread_;
};

}  // namespace dsc
