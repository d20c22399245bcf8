// The end of what runs on a device: completion, time-outs, errors, and giving up together.
#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "comm/device_engine.hpp"
#include "comm/device_watch.hpp"
#include "control/group.hpp"

namespace dsc {
namespace {

constexpr int64_t kErrorLookPeriodNs = 100 * kNsPerMs;
constexpr int64_t kAbortPatienceNs = 30 * kNsPerSecond;
constexpr int64_t kSoonNs = kNsPerMs / 4;   // when somebody waits for a descriptor
constexpr int64_t kBusyNs = 5 * kNsPerMs;   // while something runs
constexpr int64_t kIdleNs = 20 * kNsPerMs;  // for failures of others

std::atomic<bool> abort_has_hung{false};

using Lane = std::pair<OpKind, int32_t>;
Lane lane_of(const Call& call) {
  if (call.kind == OpKind::kSend || call.kind == OpKind::kRecv) return {call.kind, call.root};
  return {OpKind::kNone, -1};
}

}  // namespace

void DeviceEngine::look_at(DeviceWork& work) noexcept {
  if (work.done()) return;
  const Ending ending = ending_.load();
  if (ending == Ending::kAborted || ending == Ending::kStuck) {
    if (work.unseen)
      work.complete({});  // the next call tells
    else
      call_out([&] { work.complete(failure_of(work)); });
    return;
  }
  if (!work.launched()) return;
  capture(
      [&] {
        if (has_passed(work.end)) work.complete({});
      },
      [&](const Error& error) { fail_quietly(work.call(), work.number(), error); });
}

// Asked beside a capture of the program's, which must not notice. Nothing that was given up is said to be
// done.
bool DeviceEngine::has_passed(const PooledEvent& event) const {
  const DeviceScope scope(device());
  const CudaResult result = device().cuda().event_query(event.get());
  if (result == CudaResult::not_ready || is_of_capture(result) || ending_.load() != Ending::kNot)
    return false;
  device().check(result, "cuEventQuery");
  return true;
}

Failure DeviceEngine::failure() const {
  Failure failure = host_->failure();
  if (failure.rank == host_->rank()) failure.native_code = native_code_.load();
  if (ending_.load() == Ending::kStuck && failure.code != DSC_OK) failure.code = DSC_ERR_BACKEND_STUCK;
  return failure;
}

// The cause is that of the whole group, in this rank's words.
Failure DeviceEngine::failure_of(const DeviceWork& work) const {
  told_.store(true);
  Failure failure = this->failure();
  if (failure.code == DSC_OK || host_->is_over()) {
    failure.code = DSC_ERR_REVOKED;
    failure.text = "the communicator was destroyed";
  } else if (!strikes_all(failure.code) && failure.rank != host_->rank()) {
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
    failure.text = describe(work.call().kind, work.number(), failure.text);
  return failure;
}

int64_t DeviceEngine::look() noexcept {
  if (finalized_.load()) return kNsPerSecond;
  const int64_t now = now_ns();
  bool soon = false, busy = false;
  call_out([&] {
    if ((host_->revoked() || host_->is_over()) && ending_.load() == Ending::kNot) give_up();
    std::vector<std::shared_ptr<DeviceWork>> pending;
    {
      const MutexLock lock(mutex_);
      std::erase_if(pending_, [](const auto& work) { return work->done(); });
      pending = pending_;
    }
    for (const auto& work : pending) {
      look_at(*work);
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
  return soon ? kSoonNs : busy ? kBusyNs : kIdleNs;
}

void DeviceEngine::look_for_errors() {
  for (const auto& communicator : communicators()) {
    const NcclResult state = communicator->async_error();
    if (state == NcclResult::success) continue;
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

// The time of an operation counts from when all before it, on its own and the caller's stream, was over.
void DeviceEngine::look_at_time(const std::vector<std::shared_ptr<DeviceWork>>& pending, int64_t now) {
  std::set<Lane> seen;
  for (const auto& work : pending) {
    if (work->done() || !seen.insert(lane_of(work->call())).second) continue;
    if (work->head_since_ns == 0) {
      if (has_passed(work->begin)) work->head_since_ns = now;
      continue;
    }
    if (peer_left(work->call(), work->number())) return;
    const int64_t elapsed_ns = now - work->head_since_ns;
    const int timeout_ms = work->call().timeout_ms > 0 ? work->call().timeout_ms : host_->timeout_ms();
    if (elapsed_ns > timeout_ms * kNsPerMs) return time_out(work->call(), work->number(), elapsed_ns);
  }
}

void DeviceEngine::revoke(const Failure& cause) noexcept {
  host_->revoke(cause);
  give_up();
}

// A failure of this rank's own call: all others end, too.
Failure DeviceEngine::take_failure(const Call& call, uint64_t number, const Error& error) noexcept {
  told_.store(true);
  Failure failure;
  failure.code = error.code();
  call_out([&] {
    failure.native_code = error.place().native_code;
    if (!host_->revoked()) native_code_.store(failure.native_code);
    failure.group = host_->id();
    failure.sequence = number;
    failure.operation = op_kind_name(call.kind);
    failure.revoked = true;
    failure.text = describe(call.kind, number, error.what());
    if (host_->revoked()) {  // that is why
      const Failure cause = host_->failure();
      failure.rank = cause.rank;
      failure.ranks = cause.ranks;
      failure.code = strikes_all(cause.code) ? cause.code : DSC_ERR_REVOKED;
      failure.text = describe(call.kind, number, cause.text);
      return;
    }
    failure.ranks = {host_->rank()};
    failure.rank = host_->rank();
    explain(call, number, failure);
  });
  revoke(failure);
  return failure;
}

void DeviceEngine::fail_operation(const Call& call, uint64_t number, const Error& error) {
  fail_with(take_failure(call, number, error));
}

void DeviceEngine::fail_quietly(const Call& call, uint64_t number, const Error& error) noexcept {
  take_failure(call, number, error);
}

bool DeviceEngine::has_running() noexcept {
  if (finalized_.load() || host_->is_over()) return false;
  std::vector<std::shared_ptr<DeviceWork>> pending;
  call_out([&] {
    const MutexLock lock(mutex_);
    pending = pending_;
  });
  for (const auto& work : pending) look_at(*work);
  return std::ranges::any_of(pending, [](const auto& work) { return !work->done() && !work->unseen; });
}

Failure DeviceEngine::destroyed() const {
  Failure cause;
  cause.code = DSC_ERR_REVOKED;
  cause.rank = host_->rank();
  cause.operation = "destroy";
  cause.text = "rank " + std::to_string(host_->rank()) +
               " destroyed the communicator while operations on its device were running";
  return cause;
}

// NCCL's abort may hang, so a thread of its own does it; the works are over when it is.
void DeviceEngine::give_up() noexcept {
  Ending expected = Ending::kNot;
  if (finalized_.load() || !ending_.compare_exchange_strong(expected, Ending::kAborting)) return;
  ending_since_ns_.store(now_ns());
  const auto abort = [](const std::shared_ptr<DeviceEngine>& engine) {
    call_out([&] {
      const bool failed = engine->host_->revoked();
      for (const auto& communicator : engine->communicators()) {
        if (communicator->is_adopted() && !failed)
          communicator->let_go();
        else
          communicator->abort();
      }
    });
    Ending running = Ending::kAborting;
    engine->ending_.compare_exchange_strong(running, Ending::kAborted);
    DeviceWatch::get().wake();
  };
  const auto self = weak_from_this().lock();
  if (!self) return;
  if (!call_out([&] { start_thread("dsc-nccl-abort", [self, abort] { abort(self); }).detach(); }))
    abort(self);
}

void DeviceEngine::expect_usable() {
  if (abort_has_hung.load())
    fail(DSC_ERR_BACKEND_STUCK,
         "an earlier ncclCommAbort did not come back: this process can no longer use the GPU, exit");
}

void DeviceEngine::look_at_abort(int64_t now) noexcept {
  Ending expected = Ending::kAborting;
  if (ending_.load() != expected) return;
  const int64_t since = ending_since_ns_.load();
  const bool just_begun = since == 0;  // whoever ends it has not noted the time yet
  if (just_begun || now - since < kAbortPatienceNs) return;
  if (!ending_.compare_exchange_strong(expected, Ending::kStuck)) return;
  abort_has_hung.store(true);
  log(DSC_LOG_ERROR,
      "group \"%s\": ncclCommAbort did not come back within 30 s; this process can no longer use the GPU",
      host_->name().c_str());
}

}  // namespace dsc
