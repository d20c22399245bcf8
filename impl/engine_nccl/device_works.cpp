#include "engine_nccl/device_works.hpp"

#include <algorithm>
#include <set>

#include "base/wait.hpp"

namespace dsc {
namespace {

constexpr int kKernelsEndMs = 200;

// The key of an ordered queue: works with the same key run one after another.
using OpQueue = std::pair<OpKind, int32_t>;
OpQueue queue_of(const Call& call) {
  if (is_message(call.kind)) return {call.kind, call.root};
  return {OpKind::kNone, -1};
}

}  // namespace

std::shared_ptr<DeviceWork> DeviceWorks::make(const Call& call, CudaStream* stream, bool captured) {
  const DeviceScope scope(group_.device());
  const std::shared_ptr<DeviceWorks> shared(owner_.keep_alive(), this);
  auto work = std::make_shared<DeviceWork>(shared, group_.host->id(), call);
  work->begin_event = group_.world.gpu.events->take();
  work->end_event = group_.world.gpu.events->take();
  work->captured = captured;
  group_.device().record(work->begin_event.get(), stream);
  return work;
}

void DeviceWorks::add(std::shared_ptr<DeviceWork> work) {
  if (work->captured) {
    work->records.detach(Detached::kCaptured);
    return work->complete({}, DSC_OK);
  }
  const MutexLock lock(mutex_);
  pending_.push_back(std::move(work));
}

void DeviceWorks::clear() {
  const MutexLock lock(mutex_);
  pending_.clear();
}

DeviceWorks::List DeviceWorks::pending() const {
  const MutexLock lock(mutex_);
  return pending_;
}

void DeviceWorks::update(DeviceWork& work) noexcept {
  if (complete_if_over(work)) write_trace_again();
}

DeviceWorks::Activity DeviceWorks::update_all() {
  List pending;
  {
    const MutexLock lock(mutex_);
    std::erase_if(pending_, [](const auto& work) { return work->done(); });
    pending = pending_;
  }
  Activity activity;
  bool failed = false;
  for (const auto& work : pending) {
    failed = complete_if_over(*work) || failed;
    if (work->done()) continue;
    activity.running = true;
    activity.awaited = activity.awaited || work->has_listener();
  }
  if (failed) write_trace_again();
  return activity;
}

// Returns true if the work ended now because of a failure.
bool DeviceWorks::complete_if_over(DeviceWork& work) noexcept {
  if (work.done()) return false;
  if (ending_.over()) {
    complete_with_cause(work);
    return true;
  }
  if (!work.launched()) return false;
  capture(
      [&] {
        if (has_passed(work.end_event)) work.complete({}, DSC_OK);
      },
      [&](const Error& error) { failures_.fail_quietly(work.call(), work.sequence(), error); });
  return false;
}

// Writes the group's trace again, because the trace of the failure lacks operations that ended later.
void DeviceWorks::write_trace_again() const noexcept {
  if (group_.local().revoked()) group_.local().tell_failure();
}

// The query must not disturb a capture of the program, so a result that a capture causes means "not yet". In
// a communicator that is ending, the result for any event is "not yet" as well.
bool DeviceWorks::has_passed(const PooledEvent& event) const {
  const DeviceScope scope(group_.device());
  const CudaResult result = group_.device().cuda().event_query(event.get());
  if (result == CudaResult::not_ready || is_of_capture(result) || ending_.begun()) return false;
  group_.device().check(result, "cuEventQuery");
  return true;
}

// If the program does not know the work, its failure is not reported here; the program's next call reports
// the cause.
void DeviceWorks::complete_with_cause(DeviceWork& work) noexcept {
  std::optional<Failure> failure = failures_.failure_of(work.call(), work.sequence());
  bool has_run = false;
  call_out([&] { has_run = has_run_to_its_end(work); });
  const dsc_result_t recorded = has_run ? DSC_OK : failures_.recorded_code(failure->code);
  if (work.untracked) failure.reset();
  work.complete(failure, recorded);
}

// True if the work ended normally after this rank left, which is possible only if nothing was aborted.
bool DeviceWorks::has_run_to_its_end(const DeviceWork& work) const {
  if (ending_.aborted() || group_.host->revoked() || !work.launched()) return false;
  const DeviceScope scope(group_.device());
  return group_.device().cuda().event_query(work.end_event.get()) == CudaResult::success;
}

void DeviceWorks::complete_ended() noexcept {
  call_out([&] {
    for (const auto& work : pending())
      if (!work->done() && work->launched() && has_passed(work->end_event)) work->complete({}, DSC_OK);
  });
}

bool DeviceWorks::any_running() noexcept {
  List works;
  call_out([&] { works = pending(); });
  for (const auto& work : works) update(*work);
  return std::ranges::any_of(works, [](const auto& work) { return !work->done() && !work->untracked; });
}

// The time-out of an operation starts when all work before it has ended, on its own stream and on the
// caller's stream.
std::optional<CallFailure> DeviceWorks::find_overdue(int64_t now) {
  std::set<OpQueue> seen;
  for (const auto& work : pending()) {
    const Call& call = work->call();
    if (work->done() || !seen.insert(queue_of(call)).second) continue;
    if (work->head_since_ns == 0) {
      if (has_passed(work->begin_event)) work->head_since_ns = now;
      continue;
    }
    if (auto found = late_.find_departed(call, work->sequence())) return found;
    const int64_t elapsed_ns = now - work->head_since_ns;
    if (elapsed_ns > group_.host->state.timeout_ms(call) * kNsPerMs)
      return late_.timed_out(call, work->sequence(), elapsed_ns);
  }
  return std::nullopt;
}

void DeviceWorks::record_uncalled() noexcept {
  if (!group_.published || !group_.on_one_host() || !group_.host->revoked()) return;
  uint64_t followed = UINT64_MAX;  // sequence number of the first running collective that has an event
  call_out([&] {
    const MutexLock lock(mutex_);
    for (const auto& work : pending_)
      if (!work->done() && !is_message(work->call().kind)) followed = std::min(followed, work->sequence());
  });
  Group& local = group_.local();
  const dsc_result_t cause = local.first_code();
  const dsc_result_t code = is_group_fatal(cause) && !failures_.cause_recorded() ? cause : DSC_ERR_REVOKED;
  const uint64_t first =
      local.recorder().fail_detached(group_.published->least() + 1, followed, tick_now(), code);
  if (first == 0) return;
  if (first < followed) failures_.set_cause_recorded();
  local.tell_failure();
}

void DeviceWorks::drain(Drain which, Deadline deadline) {
  for (const auto& work : pending()) {
    if (which == Drain::kCollectives && is_message(work->call().kind)) continue;
    if (!work->wait(deadline))
      fail(DSC_ERR_TIMEOUT, "%s is still running",
           numbered(op_kind_name(work->call().kind), work->sequence()).c_str());
  }
}

void DeviceWorks::await_kernels() {
  const DeviceScope scope(group_.device());
  const Deadline deadline = Deadline::after_ms(kKernelsEndMs);
  const auto& cuda = group_.device().cuda();
  for (const auto& work : pending()) {
    if (!work->launched() || cuda.event_query(work->begin_event.get()) != CudaResult::success) continue;
    while (cuda.event_query(work->end_event.get()) == CudaResult::not_ready && !deadline.passed())
      sleep_until(Deadline::after_ms(1));
  }
}

void DeviceWorks::make_wait(void* stream, const PooledEvent& event) const {
  const DeviceScope scope(group_.device());
  group_.device().wait(static_cast<CudaStream*>(stream), event.get());
}

}  // namespace dsc
