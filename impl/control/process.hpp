// The resources that exist once in each process, for all its ranks: its page, endpoint and monitor.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "base/fd.hpp"
#include "bootstrap/endpoint.hpp"
#include "control/monitor.hpp"
#include "control/shared_memory.hpp"

namespace dsc {

// The singleton of the process. Any thread may use it.
class Process {
 public:
  // Creates the object at the first call. It is kept until the process ends, because its threads cannot be
  // joined at exit.
  static Process& get();

  ProcessPage& page() noexcept { return *page_; }
  Notifier& notifier() noexcept { return page_->notifier; }
  int page_fd() const noexcept { return page_fd_.get(); }
  int pidfd() const noexcept { return pidfd_.get(); }
  Endpoint& endpoint() noexcept { return endpoint_; }
  Monitor& monitor() noexcept { return monitor_; }

  // hold() registers a descriptor that a forked child must close, because otherwise the child would keep a
  // name in use. release() removes it.
  void hold(int fd) noexcept;
  void release(int fd) noexcept;

 private:
  Process();
  void close_after_fork() noexcept;

  const uint64_t probe_value_;  // other processes read it at its address
  UniqueFd page_fd_;
  std::shared_ptr<Mapping> mapping_;
  ProcessPage* page_;
  UniqueFd pidfd_;
  Endpoint endpoint_;
  Monitor monitor_;
  std::array<std::atomic<int>, 64> held_;
};

}  // namespace dsc
