// The part of an operation's handle that all engines have in common. Engines differ in how a thread waits.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "comm/work.hpp"
#include "control/call.hpp"
#include "control/memory.hpp"

namespace dsc {

class OperationWork : public Work {
 public:
  OperationWork(const Call& call, uint64_t group)
      : call_(call), group_(group), window_use_(call.send, call.recv) {}

  bool done() const noexcept final { return done_.load(std::memory_order_acquire); }
  bool wait(Deadline deadline) override;
  Failure failure() const override;
  int64_t end_ticks() const noexcept final { return end_ticks_.load(std::memory_order_relaxed); }
  int event_fd() final;
  void close_event_fd() noexcept final;
  void notify(std::shared_ptr<Countdown> countdown) final;

  const Call& call() const noexcept { return call_; }

 protected:
  // Returns when the operation has ended or the deadline has passed.
  virtual void await_end(Deadline deadline) = 0;
  // Called when a file descriptor or a countdown was registered and has to be signaled at the end.
  virtual void on_listener() {}
  // Ends the work. Returns false if it has already ended, because two threads may detect the end.
  bool end(const std::optional<Failure>& failure) noexcept;

 private:
  const Call call_;
  const uint64_t group_;
  WindowUse window_use_;
  std::atomic<bool> done_{false};
  std::atomic<int64_t> end_ticks_{0};
  mutable Mutex mutex_;
  std::optional<Failure> failure_ DSC_GUARDED_BY(mutex_) = std::nullopt;  // empty after a success
  UniqueFd event_fd_ DSC_GUARDED_BY(mutex_);
  std::shared_ptr<Countdown> countdown_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
