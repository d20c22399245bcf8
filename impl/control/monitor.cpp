#include "control/monitor.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"

namespace dsc {
namespace {

constexpr int kGapPeriods = 4;
constexpr int kCheckPeriodMs = 5;
thread_local bool on_monitor_thread = false;

// Locks the mutex, unless the caller is the monitor's thread. That thread already holds the lock while it
// calls its clients.
class OptionalLock {
 public:
  explicit OptionalLock(Mutex& mutex) noexcept DSC_TSA(no_thread_safety_analysis) : mutex_(mutex) {
    if (!on_monitor_thread) mutex_.lock();
  }
  ~OptionalLock() DSC_TSA(no_thread_safety_analysis) {
    if (!on_monitor_thread) mutex_.unlock();
  }
  OptionalLock(const OptionalLock&) = delete;
  OptionalLock& operator=(const OptionalLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace

Monitor::Monitor(Endpoint& endpoint, ProcessPage& page)
    : endpoint_(endpoint), page_(page), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) fail_errno(errno, "epoll_create1");
  watch(endpoint_.poll_fd());
  start_thread("dsc-monitor", [this] {
    page_.monitor_thread.store(::gettid());
    page_.monitor_thread.notify_one();
    guard_thread([this] { run(); },
                 [](const char* text) { log(DSC_LOG_LEVEL_ERROR, "monitor thread: %s", text); });
  }).detach();
  page_.monitor_thread.wait(0);
}

void Monitor::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) fail_errno(errno, "epoll_ctl");
}

void Monitor::forget(int fd) noexcept {
  OptionalLock lock(mutex_);
  drop(fd);
}

void Monitor::drop(int fd) noexcept {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  std::erase_if(watches_, [fd](const Watch& watch) { return watch.fd == fd; });
}

void Monitor::add(MonitorClient& client, const std::vector<int>& fds) {
  MutexLock lock(mutex_);
  beating_.reserve(clients_.size() + 1);
  clients_.reserve(clients_.size() + 1);
  for (const int fd : fds) {
    watches_.push_back({fd, &client});
    watch(fd);
  }
  clients_.push_back(&client);
}

void Monitor::remove(MonitorClient& client, const std::vector<int>& fds) noexcept {
  OptionalLock lock(mutex_);
  for (const int fd : fds) drop(fd);
  std::erase(clients_, &client);
}

void Monitor::run() noexcept {
  on_monitor_thread = true;
  std::array<epoll_event, 32> events;
  for (;;) {
    const int ready = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), kHeartbeatMs);
    if (ready < 0 && errno != EINTR) return;
    bool done = true;
    {
      MutexLock lock(mutex_);
      for (int i = 0; i < ready; ++i) done = dispatch(events[static_cast<size_t>(i)].data.fd) && done;
      const int64_t now = now_ns();
      if (now - last_beat_ns_ >= kHeartbeatMs * kNsPerMs) beat(now);
    }
    // A descriptor whose handler ran out of memory remains readable. The pause lets other threads get the
    // lock and the processor.
    if (!done) poll(nullptr, 0, kCheckPeriodMs);
  }
}

bool Monitor::dispatch(int fd) noexcept {
  if (fd == endpoint_.poll_fd())
    return call_out([this] { endpoint_.serve(); });  // a request that fails for lack of memory is tried again
  const auto found =
      std::find_if(watches_.begin(), watches_.end(), [fd](const Watch& watch) { return watch.fd == fd; });
  return found == watches_.end() || found->client->on_readable(fd);
}

void Monitor::beat(int64_t now) noexcept {
  const bool after_gap = now - last_beat_ns_ > kGapPeriods * kHeartbeatMs * kNsPerMs;
  last_beat_ns_ = now;
  page_.heartbeat.fetch_add(1, std::memory_order_relaxed);
  beating_ = clients_;
  for (MonitorClient* client : beating_)
    if (std::find(clients_.begin(), clients_.end(), client) != clients_.end())
      client->on_heartbeat(now, after_gap);
}

}  // namespace dsc
