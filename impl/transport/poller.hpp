// Waits on behalf of an operation between hosts, for its connections and for notifications of other threads.
//
// The waiting thread moves the bytes itself. Otherwise each message would wake the module's thread, which
// would wake the waiting one: two context switches, which take longer than a small message.
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

  // Counts an event. Any thread may call it; it is cheap while nobody waits, and never blocks.
  void notify() noexcept;
  uint64_t count() const noexcept { return completions_.count(); }

  // Waits until the count differs from `seen`; false if the deadline passes first. It moves no bytes.
  bool wait(uint64_t seen, Deadline deadline) { return completions_.wait(seen, deadline); }

  // Watches a socket; changed() returns `index` when it becomes readable or writable. Closing the socket
  // removes it.
  void add(int fd, int32_t index);

  // Returns the indices of sockets with events since the last call; empty if the count differs from `seen` or
  // the deadline has passed. One thread at a time.
  const std::vector<int32_t>& changed(uint64_t seen, Deadline deadline);

 private:
  EventCount completions_;
  ParentFd epoll_;
  ParentFd notifier_;
  std::atomic<bool> sleeping_{false};
  std::vector<int32_t> changed_;
};

}  // namespace dsc
