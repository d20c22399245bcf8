// What an operation between hosts waits with: for its connections, and for what other threads say.
//
// The thread that waits moves the bytes itself. Gloo's thread would have to be woken for each message, and
// wake the one that waits: two switches, which cost more than a small message does.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/fork_close.hpp"
#include "transport/event_count.hpp"

namespace dsc {

class Poller {
 public:
  Poller();

  // Something happened. Any thread; costs little while nobody waits, and never waits itself.
  void notify() noexcept;
  uint64_t count() const noexcept { return completions_.count(); }

  // Until the count is another than `seen`; false when the deadline passes. Moves nothing.
  bool wait(uint64_t seen, Deadline deadline) { return completions_.wait(seen, deadline); }

  // `index` is given when the socket has become readable or writable. It is forgotten when it is closed.
  void add(int fd, int32_t index);

  // The sockets at which something happened since the last time; none when the count is another than `seen`
  // or the deadline has passed. One thread.
  const std::vector<int32_t>& changed(uint64_t seen, Deadline deadline);

 private:
  EventCount completions_;
  ParentFd epoll_;
  ParentFd notifier_;
  std::atomic<bool> sleeping_{false};
  std::vector<int32_t> changed_;
};

}  // namespace dsc
