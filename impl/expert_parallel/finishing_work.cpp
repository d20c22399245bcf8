#include "expert_parallel/finishing_work.hpp"

namespace dsc {

bool FinishingWork::done() const noexcept {
  if (finished_.load(std::memory_order_acquire)) return true;
  return operation_->done() && operation_->failure().code != DSC_OK;
}

bool FinishingWork::test() {
  if (operation_->test() && operation_->failure().code == DSC_OK) finish();
  return done();
}

bool FinishingWork::wait(Deadline deadline) {
  if (!operation_->wait(deadline)) return false;
  finish();
  return true;
}

// Runs the last step before success is returned, because a program then expects the results to be ready.
Failure FinishingWork::failure() const {
  Failure ended = operation_->failure();
  if (ended.code == DSC_OK) finish();
  return ended;
}

void FinishingWork::finish() const {
  const MutexLock lock(mutex_);
  if (finished_.load(std::memory_order_relaxed)) return;
  step_();
  step_ = nullptr;
  finished_.store(true, std::memory_order_release);
}

}  // namespace dsc
