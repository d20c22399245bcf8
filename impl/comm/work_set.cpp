#include "comm/work_set.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/error.hpp"
#include "base/guard.hpp"

namespace dsc {

Countdown::Countdown(size_t works)
    : left_(works), fd_(eventfd(works == 0 ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) fail_errno(errno, "eventfd");
}

void Countdown::complete_one() noexcept {
  if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  MutexLock lock(mutex_);
  if (fd_) eventfd_write(fd_.get(), 1);
}

int Countdown::event_fd() noexcept {
  MutexLock lock(mutex_);
  return fd_.get();
}

void Countdown::close() noexcept {
  MutexLock lock(mutex_);
  fd_.reset();
}

bool WorkSet::done() const noexcept {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->done(); });
}

// Calls test() for every operation, even after one is not complete, because each call may advance that
// operation.
bool WorkSet::test() {
  bool all = true;
  for (const auto& work : works_) all = work->test() && all;
  return all;
}

// Waits for all operations, even after one has failed, because no rank may still access the buffers when this
// function returns true or throws.
bool WorkSet::wait(Deadline deadline) {
  for (const auto& work : works_) capture([&] { work->wait(deadline); }, [](dsc_result_t, const char*) {});
  if (!done()) return false;
  const Failure ended = failure();
  if (ended.code != DSC_OK) throw Error(ended);
  return true;
}

// Returns false if the deadline passes first. After an error, waits on the host for all operations before it
// throws the first error, because the caller may then reuse the buffers. That error may come from the stream,
// so it is thrown even if all operations succeed.
bool WorkSet::wait_on(void* stream, Deadline deadline) {
  bool all = true;
  std::optional<Error> first;
  for (const auto& work : works_)
    capture([&] { all = work->wait_on(stream, deadline) && all; },
            [&](const Error& error) {
              if (!first) first.emplace(error);
            });
  if (!first) return all;
  if (wait(deadline) || !deadline.passed()) throw Error(*first);
  return false;
}

Failure WorkSet::failure() const {
  Failure running;
  for (const auto& work : works_) {
    Failure failure = work->failure();
    if (failure.code == DSC_IN_PROGRESS) return failure;
    if (failure.code != DSC_OK && running.code == DSC_OK) running = failure;
  }
  return running;
}

int WorkSet::event_fd() {
  MutexLock lock(mutex_);
  if (countdown_) return countdown_->event_fd();
  countdown_ = std::make_shared<Countdown>(works_.size());
  for (const auto& work : works_) work->notify(countdown_);
  return countdown_->event_fd();
}

void WorkSet::close_event_fd() noexcept {
  MutexLock lock(mutex_);
  if (countdown_) countdown_->close();
}

void WorkSet::notify(std::shared_ptr<Countdown>) {
  fail(DSC_ERR_INTERNAL, "a set of works is not part of another one");
}

std::shared_ptr<Work> start_all(GroupEngine& group, const std::vector<Call>& calls) {
  const auto set = std::make_shared<WorkSet>(calls.size());
  capture(
      [&] {
        for (const Call& call : calls) set->add(group.start(call));
      },
      [&](const Error& error) {
        group.state.note_reported();
        group.revoke(group.state.aborted());
        capture([&] { set->wait(Deadline::never()); }, [](dsc_result_t, const char*) {});
        throw Error(error);
      });
  return set;
}

void run_all(GroupEngine& group, const std::vector<Call>& calls) {
  // Sends and receives may wait for each other, so all of them are started first.
  if (std::ranges::any_of(calls, [](const Call& call) { return is_message(call.kind); })) {
    start_all(group, calls)->wait(Deadline::never());
    return;
  }
  Error first(DSC_OK, "");
  for (const Call& call : calls)
    capture([&] { group.run(call); },
            [&](const Error& error) {
              if (first.code() == DSC_OK) first = error;
            });
  if (first.code() != DSC_OK) throw first;
}

}  // namespace dsc
