#include "transport/poller.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

#include "base/error.hpp"

namespace dsc {
namespace {

constexpr int32_t kNotifier = -1;
constexpr size_t kAtOnce = 64;

ParentFd checked(int fd, const char* what) {
  if (fd < 0) fail_errno(errno, "%s", what);
  return ParentFd(UniqueFd(fd));
}

// Events are edge-triggered. The code that handles an event must read until nothing is left, or report that
// there is more.
void watch(int epoll, int fd, uint32_t events, int32_t index) {
  epoll_event event{};
  event.events = events | EPOLLET;
  event.data.fd = index;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) fail_errno(errno, "epoll_ctl");
}

int timeout_ms(Deadline deadline) {
  return static_cast<int>(std::min<int64_t>(deadline.remaining_ms(), INT_MAX));
}

}  // namespace

Poller::Poller()
    : epoll_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      notifier_(checked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")) {
  watch(epoll_.get(), notifier_.get(), EPOLLIN, kNotifier);
}

void Poller::notify() noexcept {
  completions_.increment();
  if (sleeping_.load()) eventfd_write(notifier_.get(), 1);
}

void Poller::add(int fd, int32_t index) { watch(epoll_.get(), fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, index); }

// No wake-up is lost: this thread sets the flag before it reads the count, and notify() increments the count
// before it reads the flag.
const std::vector<int32_t>& Poller::changed(uint64_t seen, Deadline deadline) {
  changed_.clear();
  std::array<epoll_event, kAtOnce> events;
  sleeping_.store(true);
  const int wait_ms = count() == seen ? timeout_ms(deadline) : 0;
  const int got = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms);
  sleeping_.store(false);
  for (int i = 0; i < got; ++i)
    if (const int32_t index = events[static_cast<size_t>(i)].data.fd; index != kNotifier)
      changed_.push_back(index);
  return changed_;
}

}  // namespace dsc
