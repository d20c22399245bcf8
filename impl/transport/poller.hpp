// Lets an operation between hosts wait for its connections, and for notifications of other threads.
//
// The waiting thread moves the bytes itself. Otherwise each message would wake the transport module's thread,
// and that thread would wake the waiting thread. These two context switches take longer than a small message.
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

  // Counts an event. Any thread may call it. It is fast if no thread waits, and never blocks.
  void notify() noexcept;
  uint64_t count() const noexcept { return completions_.count(); }

  // Waits until the count differs from `seen`. Returns false if the deadline passes first. Moves no bytes.
  bool wait(uint64_t seen, Deadline deadline) { return completions_.wait(seen, deadline); }

  // Watches a socket: changed() returns `index` when the socket becomes readable or writable. Closing the
  // socket ends this.
  void add(int fd, int32_t index);

  // Returns the indices of sockets that had events since the last call. Returns none if the count differs
  // from `seen` or the deadline has passed. One thread at a time may call this.
  const std::vector<int32_t>& changed(uint64_t seen, Deadline deadline);

 private:
  EventCount completions_;
  ParentFd epoll_;
  ParentFd notifier_;
  std::atomic<bool> sleeping_{false};
  std::vector<int32_t> changed_;
};

}  // namespace dsc
