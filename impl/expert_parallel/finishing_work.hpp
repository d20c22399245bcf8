// A started operation whose results need one more step on this rank after the operation has ended.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "base/mutex.hpp"
#include "comm/work.hpp"

namespace dsc {

// The step runs on the thread that waits for this work or asks whether it has ended. If the operation fails,
// the step is skipped.
class FinishingWork final : public Work {
 public:
  // `step` must not throw.
  FinishingWork(std::shared_ptr<Work> operation, std::function<void()> step)
      : operation_(std::move(operation)), step_(std::move(step)) {}

  bool done() const noexcept override;
  bool test() override;
  bool wait(Deadline deadline) override;
  uint64_t sequence() const noexcept override { return operation_->sequence(); }
  int64_t end_ticks() const noexcept override { return operation_->end_ticks(); }
  Failure failure() const override;
  int event_fd() override { return operation_->event_fd(); }
  void notify(std::shared_ptr<Countdown> countdown) override { operation_->notify(std::move(countdown)); }
  void close_event_fd() noexcept override { operation_->close_event_fd(); }

 private:
  void finish() const;

  const std::shared_ptr<Work> operation_;
  mutable Mutex mutex_;
  mutable std::function<void()> step_ DSC_GUARDED_BY(mutex_);  // empty after it has run
  mutable std::atomic<bool> finished_{false};
};

}  // namespace dsc
