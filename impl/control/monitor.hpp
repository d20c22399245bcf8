// The one thread that watches: it answers the endpoint, sees processes die, beats and looks at the others'
// heartbeats.
#pragma once

#include <cstdint>
#include <vector>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "bootstrap/endpoint.hpp"
#include "control/layout.hpp"

namespace dsc {

inline constexpr int64_t kHeartbeatMs = 250;

// Called on the monitor's thread, one call after another. Must not wait.
class MonitorClient {
 public:
  virtual ~MonitorClient() = default;
  // False: there was no memory for it, and it is to be called again.
  virtual bool on_readable(int fd) noexcept = 0;
  // Every kHeartbeatMs. `after_gap`: this thread itself did not run for a while, so nobody may be accused.
  virtual void on_heartbeat(int64_t now, bool after_gap) noexcept = 0;
};

class Monitor {
 public:
  Monitor(Endpoint& endpoint, ProcessPage& page);

  void add(MonitorClient& client, const std::vector<int>& fds);
  // Watches no more of these; returns when no call of the client runs. On the monitor's own thread: at once.
  void remove(MonitorClient& client, const std::vector<int>& fds) noexcept DSC_TSA(no_thread_safety_analysis);
  // Watches one descriptor no more; the caller may close it then. Any thread.
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
  std::vector<MonitorClient*> beating_ DSC_GUARDED_BY(mutex_);  // always with room for all clients
  int64_t last_beat_ns_ DSC_GUARDED_BY(mutex_) = 0;
};

}  // namespace dsc
