// The monitor thread of a process. It answers requests at the endpoint, detects that processes have ended,
// increments the heartbeat of this process, and checks the heartbeats of other processes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "bootstrap/endpoint.hpp"
#include "control/layout.hpp"

namespace dsc {

inline constexpr int64_t kHeartbeatMs = 250;

// Callbacks on the monitor's thread, one at a time. They must not block.
class MonitorClient {
 public:
  virtual ~MonitorClient() = default;
  // Returns false if memory ran out; then it is called again.
  virtual bool on_readable(int fd) noexcept = 0;
  // Called every kHeartbeatMs. `after_gap` means that the monitor's thread itself did not run for a while.
  // Missing heartbeats of other processes then prove nothing.
  virtual void on_heartbeat(int64_t now, bool after_gap) noexcept = 0;
};

// Owns the monitor thread. Any thread may call its functions.
class Monitor {
 public:
  Monitor(Endpoint& endpoint, ProcessPage& page);

  void add(MonitorClient& client, const std::vector<int>& fds);
  // Stops watching these descriptors. Returns when no callback of the client is running; on the monitor's own
  // thread it returns immediately.
  void remove(MonitorClient& client, const std::vector<int>& fds) noexcept DSC_TSA(no_thread_safety_analysis);
  // Stops watching one descriptor, which the caller may then close. Any thread may call this.
  void forget(int fd) noexcept DSC_TSA(no_thread_safety_analysis);

  void close_after_fork() noexcept { epoll_.reset(); }

 private:
  void run() noexcept;
  bool dispatch(int fd) noexcept DSC_REQUIRES(mutex_);
  void beat(int64_t now) noexcept DSC_REQUIRES(mutex_);
  void watch(int fd);
  void drop(int fd) noexcept DSC_REQUIRES(mutex_);

  struct Watch {
    int fd;
    MonitorClient* client;
  };

  Endpoint& endpoint_;
  ProcessPage& page_;
  UniqueFd epoll_;
  Mutex mutex_;
  std::vector<Watch> watches_ DSC_GUARDED_BY(mutex_);
  std::vector<MonitorClient*> clients_ DSC_GUARDED_BY(mutex_);
  // A copy of `clients_` that beat() uses. Its capacity always suffices for all clients, so that a heartbeat
  // never allocates.
  std::vector<MonitorClient*> beating_ DSC_GUARDED_BY(mutex_);
  int64_t last_beat_ns_ DSC_GUARDED_BY(mutex_) = 0;
};

}  // namespace dsc
