#include "engine_nccl/device_work.hpp"

#include <sched.h>
#include <time.h>

#include "base/error.hpp"
#include "engine_nccl/device_watch.hpp"
#include "engine_nccl/device_works.hpp"

namespace dsc {
namespace {

constexpr int kEagerWorkPolls = 100;  // polls without a sleep in between
constexpr timespec kPollPause{0, 50'000};

template <typename Ready>
bool wait_until(Deadline deadline, Ready&& ready) {
  for (int polls = 0; !ready(); ++polls) {
    if (deadline.remaining_ns() == 0) return false;
    if (polls < kEagerWorkPolls)
      sched_yield();
    else
      nanosleep(&kPollPause, nullptr);
  }
  return true;
}

}  // namespace

DeviceWork::DeviceWork(std::shared_ptr<DeviceWorks> works, uint64_t group, const Call& call)
    : OperationWork(call, group), works_(std::move(works)) {}

bool DeviceWork::test() {
  if (!done()) works_->update(*this);
  return done();
}

bool DeviceWork::wait(Deadline deadline) {
  if (captured)
    fail(DSC_ERR_STATE,
         "this work is part of a graph that is being captured: expected dsc_work_wait() with its stream");
  return OperationWork::wait(deadline);
}

void DeviceWork::await_end(Deadline deadline) {
  wait_until(deadline, [this] { return test(); });
}

// Blocks the calling thread only until the work is on its own stream. If the work has failed, this throws the
// failure.
bool DeviceWork::wait_on(void* stream, Deadline deadline) {
  if (!wait_until(deadline, [this] { return launched() || test(); })) return false;
  if (done()) OperationWork::wait(deadline);
  works_->make_wait(stream, end_event);
  return true;
}

Failure DeviceWork::failure() const {
  Failure known = OperationWork::failure();
  if (known.code != DSC_OK && known.code != DSC_IN_PROGRESS) works_->note_reported();
  return known;
}

void DeviceWork::on_listener() {
  has_listener_.store(true);
  DeviceWatch::get().wake();
}

// Only the first call has an effect. The record is ended before the work is marked as done, so that a program
// that sees the end also finds it in the record.
void DeviceWork::complete(const std::optional<Failure>& failure, dsc_result_t recorded) noexcept {
  const MutexLock lock(records_mutex_);
  if (done()) return;
  records.end(tick_now(), recorded);
  end(failure);
}

}  // namespace dsc
