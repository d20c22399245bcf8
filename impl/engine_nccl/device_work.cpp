#include "engine_nccl/device_work.hpp"

#include <sched.h>
#include <sys/eventfd.h>
#include <time.h>

#include <cerrno>

#include "base/error.hpp"
#include "comm/work_set.hpp"
#include "engine_nccl/device_engine.hpp"
#include "engine_nccl/device_watch.hpp"

namespace dsc {
namespace {

constexpr int kEagerPolls = 100;  // polls without a sleep in between
constexpr timespec kPollPause{0, 50'000};

template <typename Ready>
bool wait_until(Deadline deadline, Ready&& ready) {
  for (int looks = 0; !ready(); ++looks) {
    if (deadline.remaining_ns() == 0) return false;
    if (looks < kEagerPolls)
      sched_yield();
    else
      nanosleep(&kPollPause, nullptr);
  }
  return true;
}

}  // namespace

bool DeviceWork::test() {
  if (!done()) engine_->look_at(*this);
  return done();
}

bool DeviceWork::wait(Deadline deadline) {
  if (captured)
    fail(DSC_ERR_STATE,
         "this work is part of a graph that is being captured: expected dsc_work_wait() with its stream");
  if (!wait_until(deadline, [this] { return test(); })) return false;
  const Failure ended = failure();
  if (ended.code != DSC_OK) fail_with(ended);
  return true;
}

// The host waits only until the work is on its own stream. If the work has failed, this throws the failure.
bool DeviceWork::wait_on(void* stream, Deadline deadline) {
  if (!wait_until(deadline, [this] { return launched() || test(); })) return false;
  if (done()) {
    const Failure ended = failure();
    if (ended.code != DSC_OK) fail_with(ended);
  }
  engine_->let_wait(stream, end);
  return true;
}

Failure DeviceWork::failure() const {
  const MutexLock lock(mutex_);
  if (done()) {
    if (failure_.code != DSC_OK) engine_->note_told();
    return failure_;
  }
  Failure running;
  running.code = DSC_IN_PROGRESS;
  running.group = engine_->host().id();
  return running;
}

int DeviceWork::event_fd() {
  const MutexLock lock(mutex_);
  if (event_fd_) return event_fd_.get();
  event_fd_.reset(eventfd(done() ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_fd_) fail_errno(errno, "eventfd");
  has_listener_.store(true);
  DeviceWatch::get().wake();
  return event_fd_.get();
}

void DeviceWork::close_event_fd() noexcept {
  const MutexLock lock(mutex_);
  event_fd_.reset();
}

void DeviceWork::notify(std::shared_ptr<Countdown> countdown) {
  const MutexLock lock(mutex_);
  if (done()) return countdown->complete_one();
  countdown_ = std::move(countdown);
  has_listener_.store(true);
  DeviceWatch::get().wake();
}

// Only the first call counts: the watch and a waiting thread may both have seen the end.
void DeviceWork::complete(Failure failure, dsc_result_t recorded) noexcept {
  const MutexLock lock(mutex_);
  if (done()) return;
  records.end(tick_now(), recorded);
  failure_ = std::move(failure);
  done_.store(true, std::memory_order_release);
  if (event_fd_) eventfd_write(event_fd_.get(), 1);
  if (countdown_) countdown_->complete_one();
}

}  // namespace dsc
