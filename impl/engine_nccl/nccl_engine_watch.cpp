// The end of operations on a device: completion, time-outs, errors, and the end of NCCL's communicators
// after a failure of the group.
#include <algorithm>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "base/wait.hpp"
#include "control/group.hpp"
#include "engine_nccl/device_watch.hpp"
#include "engine_nccl/nccl_engine.hpp"

namespace dsc {
namespace {

constexpr int64_t kErrorLookPeriodNs = 100 * kNsPerMs;
constexpr int64_t kAbortPatienceNs = 30 * kNsPerSecond;
constexpr int kKernelsEndMs = 200;
constexpr int kAdoptedMs = 2000;  // for threads that are about to detach it
constexpr int64_t kOthersNewsNs = kNsPerSecond;
constexpr int64_t kSoonNs = kNsPerMs / 4;   // while a program waits for a descriptor
constexpr int64_t kBusyNs = 5 * kNsPerMs;   // while operations run
constexpr int64_t kIdleNs = 20 * kNsPerMs;  // to find failures of other ranks

std::atomic<bool> abort_has_hung{false};
std::atomic<int> endings_under_way{0};

using OpQueue = std::pair<OpKind, int32_t>;
OpQueue lane_of(const Call& call) {
  if (is_message(call)) return {call.kind, call.root};
  return {OpKind::kNone, -1};
}

}  // namespace

void NcclEngine::look_at(DeviceWork& work) noexcept {
  if (see_end(work)) write_trace_again();
}

// Marks a work as complete if it has ended. Returns true if it ended now because of a failure.
bool NcclEngine::see_end(DeviceWork& work) noexcept {
  if (work.done()) return false;
  const Ending ending = ending_.load();
  if (ending == Ending::kEnded || ending == Ending::kStuck) {
    end_with_cause(work);
    return true;
  }
  if (!work.launched()) return false;
  capture(
      [&] {
        if (has_passed(work.end_event)) work.complete({}, DSC_OK);
      },
      [&](const Error& error) { fail_quietly(work.call(), work.number(), error); });
  return false;
}

// Writes the group's trace again: the one written at the failure lacks operations that ended later.
void NcclEngine::write_trace_again() const noexcept {
  if (local_.group->revoked()) local_.group->tell_failure();
}

// True if an event has passed. The query must not disturb a capture of the program, so a result that comes
// from one counts as "not yet"; so does any event of a communicator that is ending.
bool NcclEngine::has_passed(const PooledEvent& event) const {
  const DeviceScope scope(device());
  const CudaResult result = device().cuda().event_query(event.get());
  if (result == CudaResult::not_ready || is_of_capture(result) || ending_.load() != Ending::kNot)
    return false;
  device().check(result, "cuEventQuery");
  return true;
}

Failure NcclEngine::failure() const {
  Failure failure = host_->failure();
  if (failure.rank == host_->rank()) failure.native_code = native_code_.load();
  if (ending_.load() == Ending::kStuck && failure.code != DSC_OK) failure.code = DSC_ERR_BACKEND_STUCK;
  return failure;
}

// Ends a work with the cause of the failure. If only the watch has the work, the next call reports the
// cause.
void NcclEngine::end_with_cause(DeviceWork& work) noexcept {
  const bool told = call_out([&] {
    Failure failure = failure_of(work);
    const dsc_result_t code = has_run_to_its_end(work) ? DSC_OK : recorded_code(failure.code);
    work.complete(work.untracked ? Failure{} : std::move(failure), code);
  });
  if (told) return;
  Failure bare;  // without memory only the code is kept
  bare.code = DSC_ERR_REVOKED;
  bare.revoked = true;
  work.complete(work.untracked ? Failure{} : bare, bare.code);
}

// True if the work ended normally after this rank left, which is possible only if nothing was aborted.
bool NcclEngine::has_run_to_its_end(const DeviceWork& work) const {
  if (aborted_.load() || host_->revoked() || !work.launched()) return false;
  const DeviceScope scope(device());
  return device().cuda().event_query(work.end_event.get()) == CudaResult::success;
}

// Only the first operation that fails is recorded with the cause, because those behind it never began.
dsc_result_t NcclEngine::recorded_code(dsc_result_t code) noexcept {
  return cause_recorded_.exchange(true) ? DSC_ERR_REVOKED : code;
}

// Returns the group's cause, with this work's operation and number.
Failure NcclEngine::failure_of(const DeviceWork& work) const {
  Failure failure = this->failure();
  if (failure.code == DSC_OK || host_->state.is_over()) {
    failure.code = DSC_ERR_REVOKED;
    failure.text = "the communicator was destroyed";
  } else if (!is_group_fatal(failure.code) && failure.rank != host_->rank()) {
    failure.code = DSC_ERR_REVOKED;
  }
  if (ending_.load() == Ending::kStuck) {
    failure.code = DSC_ERR_BACKEND_STUCK;
    failure.text +=
        "; ncclCommAbort did not come back within 30 s: this process can no longer use the GPU, exit";
  }
  failure.operation = op_kind_name(work.call().kind);
  failure.sequence = work.number();
  failure.revoked = true;
  if (failure.text.find(" number ") == std::string::npos)
    failure.text = host_->state.describe(work.call().kind, work.number(), failure.text);
  return failure;
}

int64_t NcclEngine::look() noexcept {
  if (finalized_.load()) return kNsPerSecond;
  const int64_t now = now_ns();
  bool soon = false, busy = false, failed = false;
  call_out([&] {
    if ((host_->revoked() || host_->state.is_over()) && ending_.load() == Ending::kNot) give_up();
    std::vector<std::shared_ptr<DeviceWork>> pending;
    {
      const MutexLock lock(mutex_);
      std::erase_if(pending_, [](const auto& work) { return work->done(); });
      pending = pending_;
    }
    for (const auto& work : pending) {
      failed = see_end(*work) || failed;
      if (work->done()) continue;
      busy = true;
      soon = soon || work->has_listener();
    }
    if (ending_.load() != Ending::kNot) return look_at_abort(now);
    if (concluding_.load()) return;
    look_at_time(pending, now);
    look_at_calls(now);
    if (now >= next_error_look_ns_ && !concluding_.load()) {
      next_error_look_ns_ = now + kErrorLookPeriodNs;
      look_for_errors();
    }
  });
  if (failed) write_trace_again();
  return soon ? kSoonNs : busy ? kBusyNs : kIdleNs;
}

// Waits a while for the failure of a peer: NCCL sees a closed connection before the host's side finds that
// the peer has died, which explains more.
void NcclEngine::await_news(const Error& error) const {
  const Deadline deadline{now_ns() + kOthersNewsNs};
  constexpr auto kRemote = static_cast<int32_t>(NcclResult::remote_error);
  while (error.code() == DSC_ERR_BACKEND && error.place().native_code == kRemote && !host_->revoked() &&
         !deadline.passed())
    sleep_until(Deadline::after_ms(1));
}

void NcclEngine::look_for_errors() {
  for (const auto& communicator : communicators()) {
    const NcclResult state = communicator->async_error();
    if (state == NcclResult::success) continue;
    if (error_seen_ns_ == 0) error_seen_ns_ = now_ns();
    const bool may_be_of_peer = state == NcclResult::remote_error || state == NcclResult::system_error;
    if (may_be_of_peer && now_ns() - error_seen_ns_ < kOthersNewsNs) {
      next_error_look_ns_ = 0;  // looks again the next time
      return;
    }
    Failure cause;
    cause.code = DSC_ERR_BACKEND;
    cause.native_code = static_cast<int32_t>(state);
    native_code_.store(cause.native_code);
    cause.rank = host_->rank();
    cause.ranks = {host_->rank()};
    cause.group = host_->id();
    cause.revoked = true;
    cause.text = "NCCL on rank " + std::to_string(host_->rank()) + " reports: " + communicator->words(state);
    revoke_beside(cause, {}, 0);
    return;
  }
}

// Fails operations that take too long. Their time counts from the end of all work before them, on their own
// and on the caller's stream.
void NcclEngine::look_at_time(const std::vector<std::shared_ptr<DeviceWork>>& pending, int64_t now) {
  std::set<OpQueue> seen;
  for (const auto& work : pending) {
    if (work->done() || !seen.insert(lane_of(work->call())).second) continue;
    if (work->head_since_ns == 0) {
      if (has_passed(work->begin_event)) work->head_since_ns = now;
      continue;
    }
    if (peer_left(work->call(), work->number())) return;
    const int64_t elapsed_ns = now - work->head_since_ns;
    const int timeout_ms = work->call().timeout_ms > 0 ? work->call().timeout_ms : host_->timeout_ms();
    if (elapsed_ns > timeout_ms * kNsPerMs) return time_out(work->call(), work->number(), elapsed_ns);
  }
}

void NcclEngine::revoke(const Failure& cause) noexcept {
  host_->revoke(cause);
  give_up();
}

// Fails the group because of an error in a call of this rank, and returns the failure of the call.
Failure NcclEngine::take_failure(const Call& call, uint64_t number, const Error& error,
                                 DeviceRecords* records) noexcept {
  Failure failure;
  failure.code = error.code();
  call_out([&] {
    await_news(error);
    failure.native_code = error.place().native_code;
    if (!host_->revoked()) native_code_.store(failure.native_code);
    failure.group = host_->id();
    failure.sequence = number;
    failure.operation = op_kind_name(call.kind);
    failure.revoked = true;
    failure.text = host_->state.describe(call.kind, number, error.what());
    if (host_->revoked()) {  // the group's failure is the cause of this error
      const Failure cause = host_->failure();
      failure.rank = cause.rank;
      failure.ranks = cause.ranks;
      failure.code = is_group_fatal(cause.code) ? cause.code : DSC_ERR_REVOKED;
      failure.text = host_->state.describe(call.kind, number, cause.text);
      return;
    }
    failure.ranks = {host_->rank()};
    failure.rank = host_->rank();
    explain(call, number, failure);
  });
  if (records) records->end(tick_now(), recorded_code(failure.code));
  revoke(failure);
  return failure;
}

void NcclEngine::fail_operation(const Call& call, uint64_t number, const Error& error,
                                DeviceRecords* records) {
  told_.store(true);
  fail_with(take_failure(call, number, error, records));
}

void NcclEngine::fail_quietly(const Call& call, uint64_t number, const Error& error) noexcept {
  take_failure(call, number, error);
}

bool NcclEngine::has_running() noexcept {
  if (finalized_.load() || host_->state.is_over()) return false;
  std::vector<std::shared_ptr<DeviceWork>> pending;
  call_out([&] {
    const MutexLock lock(mutex_);
    pending = pending_;
  });
  for (const auto& work : pending) look_at(*work);
  return std::ranges::any_of(pending, [](const auto& work) { return !work->done() && !work->untracked; });
}

// Completes works that have ended before the group gives up, because these have not failed.
void NcclEngine::see_passed() noexcept {
  call_out([&] {
    std::vector<std::shared_ptr<DeviceWork>> pending;
    {
      const MutexLock lock(mutex_);
      pending = pending_;
    }
    for (const auto& work : pending)
      if (!work->done() && work->launched() && has_passed(work->end_event)) work->complete({}, DSC_OK);
  });
}

// Separate threads abort, because NCCL's abort may hang. Works end when these threads are done.
void NcclEngine::give_up() noexcept {
  if (ending_.load() == Ending::kNot) see_passed();
  Ending expected = Ending::kNot;
  if (finalized_.load() || !ending_.compare_exchange_strong(expected, Ending::kEnding)) return;
  record_uncalled();
  const auto self = weak_from_this().lock();
  if (!self) return;
  endings_under_way.fetch_add(1);
  const auto run = [self] {
    call_out([&] { self->end_communicators(); });
    Ending running = Ending::kEnding;
    self->ending_.compare_exchange_strong(running, Ending::kEnded);
    self->record_uncalled();
    endings_under_way.fetch_sub(1);
    DeviceWatch::get().wake();
  };
  if (!call_out([&] { start_thread("dsc-nccl-end", run).detach(); })) run();
}

// Ends all communicators at once, because the abort of one may wait for kernels that only the abort of
// another one ends.
void NcclEngine::end_communicators() {
  const auto all = communicators();
  std::vector<std::thread> threads;
  threads.reserve(all.size());  // a started thread that cannot be stored would end the process
  for (const auto& communicator : all)
    if (!call_out([&] {
          threads.push_back(start_thread("dsc-nccl-end", [this, communicator] { end(*communicator); }));
        }))
      end(*communicator);
  for (std::thread& thread : threads) thread.join();
  await_kernels();
}

// Lets operations run to their end if the group has not failed, because other ranks need this rank's part.
void NcclEngine::end(NcclCommunicator& communicator) noexcept {
  const NcclWait patience{Deadline::after_ms(host_->timeout_ms()), [this] {
                            if (host_->revoked()) fail(DSC_ERR_REVOKED, "the communicator has failed");
                          }};
  bool left = false;
  if (!host_->revoked()) run_until(patience.deadline.ns, [&] { left = communicator.leave(patience); });
  if (left) return;
  aborted_.store(true);
  run_until(now_ns(), [&] { communicator.abort(); });
}

// Runs `body`, which should return by `due_ns`. If it does not return within a while after that, the watch
// treats the device as stuck.
template <typename Body>
void NcclEngine::run_until(int64_t due_ns, const Body& body) noexcept {
  std::multiset<int64_t>::iterator due;
  const bool noted = call_out([&] {
    const MutexLock lock(mutex_);
    due = due_ns_.insert(due_ns);
  });
  body();
  if (!noted) return;
  const MutexLock lock(mutex_);
  due_ns_.erase(due);
}

// Waits for kernels that still run: if ranks are threads of one process, NCCL's abort can return before
// them.
void NcclEngine::await_kernels() {
  std::vector<std::shared_ptr<DeviceWork>> running;
  {
    const MutexLock lock(mutex_);
    running = pending_;
  }
  const DeviceScope scope(device());
  const Deadline deadline = Deadline::after_ms(kKernelsEndMs);
  const auto& cuda = device().cuda();
  for (const auto& work : running) {
    if (!work->launched() || cuda.event_query(work->begin_event.get()) != CudaResult::success) continue;
    while (cuda.event_query(work->end_event.get()) == CudaResult::not_ready && !deadline.passed())
      sleep_until(Deadline::after_ms(1));
  }
}

// Waits until the threads that end communicators are done, for all engines of the process.
void NcclEngine::await_endings(Deadline deadline) noexcept {
  while (endings_under_way.load() > 0 && !deadline.passed()) sleep_until(Deadline::after_ms(1));
}

void NcclEngine::await_adopted() const noexcept {
  const auto communicator = this->communicator();
  const Deadline deadline = Deadline::after_ms(kAdoptedMs);
  while (communicator && communicator->is_adopted() && !communicator->ended() && !deadline.passed())
    sleep_until(Deadline::after_ms(1));
}

void NcclEngine::expect_usable() {
  if (abort_has_hung.load())
    fail(DSC_ERR_BACKEND_STUCK,
         "an earlier ncclCommAbort did not come back: this process can no longer use the GPU, exit");
}

void NcclEngine::look_at_abort(int64_t now) noexcept {
  {
    const MutexLock lock(mutex_);
    if (due_ns_.empty() || now - *due_ns_.begin() < kAbortPatienceNs) return;
  }
  Ending expected = Ending::kEnding;
  if (has_graphs_.load()) {  // the kernels are over, but NCCL waits until the graphs are destroyed
    if (!ending_.compare_exchange_strong(expected, Ending::kEnded)) return;
    return log(DSC_LOG_WARN,
               "group \"%s\": NCCL keeps its communicator until the graphs that use it are destroyed",
               host_->name().c_str());
  }
  if (!ending_.compare_exchange_strong(expected, Ending::kStuck)) return;
  abort_has_hung.store(true);
  log(DSC_LOG_ERROR,
      "group \"%s\": NCCL did not end its communicator within 30 s; this process can no longer use the GPU",
      host_->name().c_str());
}

}  // namespace dsc
