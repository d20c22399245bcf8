#include "comm/operation_work.hpp"

#include <sys/eventfd.h>

#include <cerrno>

#include "base/error.hpp"
#include "comm/work_set.hpp"

namespace dsc {

bool OperationWork::wait(Deadline deadline) {
  if (!done()) await_end(deadline);
  if (!done()) return false;
  {
    const MutexLock lock(mutex_);
    if (!failure_) return true;
  }
  throw Error(failure());
}

Failure OperationWork::failure() const {
  const MutexLock lock(mutex_);
  if (done()) return failure_.value_or(Failure{});
  Failure running;
  running.code = DSC_IN_PROGRESS;
  running.group = group_;
  return running;
}

int OperationWork::event_fd() {
  const MutexLock lock(mutex_);
  if (event_fd_) return event_fd_.get();
  event_fd_.reset(eventfd(done() ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_fd_) fail_errno(errno, "eventfd");
  on_listener();
  return event_fd_.get();
}

void OperationWork::close_event_fd() noexcept {
  const MutexLock lock(mutex_);
  event_fd_.reset();
}

void OperationWork::notify(std::shared_ptr<Countdown> countdown) {
  const MutexLock lock(mutex_);
  if (done()) return countdown->complete_one();
  countdown_ = std::move(countdown);
  on_listener();
}

bool OperationWork::end(const std::optional<Failure>& failure) noexcept {
  const MutexLock lock(mutex_);
  if (done()) return false;
  if (failure) failure_.emplace(*failure);
  end_ticks_.store(tick_now(), std::memory_order_relaxed);
  window_use_.end();
  done_.store(true, std::memory_order_seq_cst);
  if (event_fd_) eventfd_write(event_fd_.get(), 1);
  if (countdown_) countdown_->complete_one();
  return true;
}

}  // namespace dsc
