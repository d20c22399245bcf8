#include "engine_host/host_engine.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/process_guard.hpp"
#include "comm/describe.hpp"
#include "comm/local_move.hpp"
#include "comm/transfer.hpp"
#include "engine_host/progress.hpp"

namespace dsc {
namespace {

CommIdentity identity_of(const Group& group) {
  CommIdentity identity{group.id(), group.name(), group.rank(), {}};
  for (const int32_t rank : group.local_ranks())
    identity.global_ranks.push_back(group.world().global_rank(rank));
  return identity;
}

LocalMembers members_of(const std::shared_ptr<Group>& group) {
  std::vector<int32_t> ranks(static_cast<size_t>(group->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {group, std::move(ranks)};
}

}  // namespace

std::shared_ptr<HostEngine> HostEngine::create_world(const std::shared_ptr<Group>& group,
                                                     std::shared_ptr<const WorldInfo> info, int timeout_ms,
                                                     Deadline deadline) {
  std::shared_ptr<HostEngine> engine;
  capture(
      [&] {
        group->map_members(deadline, [] {});
        engine = std::make_shared<HostEngine>(group, std::move(info), timeout_ms);
      },
      [&](dsc_result_t code, const char* text) {
        // The others must not wait for a rank that fails on its own. Failures of a peer they detect
        // themselves.
        if (code == DSC_ERR_NOMEM || code == DSC_ERR_NOSPACE || code == DSC_ERR_SYSTEM) group->leave();
        throw Error(code, text);
      });
  Call barrier;
  barrier.kind = OpKind::kReady;
  barrier.timeout_ms = static_cast<int>(std::clamp<int64_t>(deadline.remaining_ms(), 1, timeout_ms));
  engine->run(barrier);
  engine->collectives_.restart_numbers();
  group->withdraw();  // all members have mapped it
  return engine;
}

HostEngine::HostEngine(const std::shared_ptr<Group>& group, std::shared_ptr<const WorldInfo> info,
                       int timeout_ms)
    : GroupEngine(identity_of(*group), members_of(group), std::move(info), timeout_ms), group_(group) {
  ProgressEngine::get();  // made here, where lack of memory can be reported
}

OpQueue& HostEngine::queue_for(const Call& call) {
  if (!is_message(call.kind)) return collectives_;
  MutexLock lock(queues_mutex_);
  auto& queues = call.kind == OpKind::kSend ? send_queues_ : recv_queues_;
  return queues.try_emplace(call.root, *this).first->second;
}

// Must not throw, because the caller holds its queue.
Failure HostEngine::refusal(const Operation& operation) const noexcept {
  const OpKind kind = operation.call().kind;
  Failure refusal;
  refusal.code = state.takes_no_part() ? DSC_ERR_STATE : DSC_ERR_REVOKED;
  call_out([&] {  // without memory only the code is kept
    refusal = state.refusal(group_->revoked() ? group_->first_cause() : Failure{});
    refusal.operation = op_kind_name(kind);
    refusal.sequence = operation.sequence();
    if (!group_->is_part()) refusal.text = state.describe(kind, refusal.sequence, refusal.text);
  });
  return refusal;
}

std::optional<Failure> HostEngine::finish(Operation& operation, Progress progress) noexcept {
  const int64_t end = tick_now();
  operation.end(end, progress == Progress::kDone ? DSC_OK : operation.failure().code);
  if (operation.found().count > 0)
    state.nonfinite->add(operation.call().kind, operation.sequence(), operation.found());
  if (progress == Progress::kDone) {
    const int64_t met = operation.met_ticks();
    stats.add(operation.call().kind, operation.bytes(), ticks_to_ns(met - operation.started_ticks()),
              ticks_to_ns(end - met));
    return std::nullopt;
  }
  if (operation.failure().code != DSC_ERR_NONFINITE) {  // which does not fail the group
    state.note_reported();
    group_->tell_failure();
  }
  Failure failure;
  failure.code = operation.failure().code;
  call_out([&] {
    failure = operation.failure();
    if (!group_->is_part())  // else the larger communicator names its own operation
      failure.text = state.describe(operation.call().kind, operation.sequence(), failure.text);
  });
  return failure;
}

Record HostEngine::record_locally(const Call& call, const Transfer& transfer, int64_t now) noexcept {
  const uint64_t number = comes_before_numbers(call.kind) ? 0 : ++local_operations_;
  if (group_->is_part()) return {};
  Record record = group_->recorder().open(
      recorded_call(call, number, transfer.send_bytes, transfer.recv_bytes, state.timeout_ms(call)), now);
  record.start(now);
  record.meet(now);
  if (transfer.pattern != Pattern::kNothing) record.move_by(Algorithm::kLocal);
  return record;
}

void HostEngine::move_checked(const Call& call, const Transfer& transfer, Failure& failure) {
  const NonFinite found = move_locally(call, transfer);
  if (found.count == 0) return;
  state.nonfinite->add(call.kind, local_operations_, found);
  if (call.nonfinite != NonFiniteCheck::kFail) return;
  failure.code = DSC_ERR_NONFINITE;
  failure.index = found.index;
  failure.text = describe_found(found);
}

// Runs an operation in a group of one rank, without the queue. As with more ranks, a user-defined operation
// that fails also fails the communicator.
std::optional<Failure> HostEngine::run_locally(const Call& call) {
  const Transfer transfer(call, 0, 1);
  const int64_t start = tick_now();
  Record record = record_locally(call, transfer, start);
  Failure failure;
  capture([&] { move_checked(call, transfer, failure); },
          [&](dsc_result_t code, const char* text) {
            failure.code = code;
            call_out([&] { failure.text = text; });
          });
  const int64_t end = tick_now();
  record.end(end, failure.code);
  if (failure.code == DSC_OK) {
    stats.add(call.kind, transfer.send_bytes, 0, ticks_to_ns(end - start));
    return std::nullopt;
  }
  failure.rank = group_->shown_rank(0);
  failure.group = id();
  failure.sequence = comes_before_numbers(call.kind) ? 0 : local_operations_;
  failure.elapsed_ns = ticks_to_ns(end - start);
  call_out([&] {
    failure.ranks = {failure.rank};
    failure.operation = op_kind_name(call.kind);
  });
  failure.revoked = failure.code == DSC_ERR_CALLBACK;
  failure.is_of_whole = group_->is_part();  // its rank is that of the larger communicator
  if (failure.revoked) revoke(failure);
  if (failure.is_of_whole) return failure;
  call_out([&] { failure.text = state.describe(call.kind, failure.sequence, failure.text); });
  return failure;
}

bool HostEngine::is_alone() noexcept {
  return size() == 1 && !refuses() && !group_->revoked() && !collectives_.busy();
}

void HostEngine::run(const Call& call) {
  const std::optional<Failure> failure = is_alone() ? run_locally(call) : queue_for(call).run(call);
  if (failure) fail_with(*failure);
}

std::shared_ptr<Work> HostEngine::start(const Call& call) {
  if (!is_alone()) return queue_for(call).start(call);
  const auto work = std::make_shared<HostWork>(share(), collectives_, call);
  work->complete(run_locally(call).value_or(Failure{}));
  return work;
}

void HostEngine::revoke(const Failure& cause) noexcept {
  state.note_reported();  // the caller knows the cause
  group_->revoke(cause);
  group_->tell_failure();
  state.fail_channels(cause);
  notifier().notify();  // a recovery that was aborted waits here
}

bool HostEngine::has_running() noexcept {
  if (running_.load() > 0 || collectives_.runs_alone()) return true;
  MutexLock lock(queues_mutex_);
  for (auto* side : {&send_queues_, &recv_queues_})
    for (const auto& [peer, queue] : *side)
      if (queue.runs_alone()) return true;
  return false;
}

void HostEngine::leave_if_idle() noexcept {
  if (!has_running()) group_->leave_to_finalize();
}

void HostEngine::leave() noexcept {
  if (!state.leave()) return;
  if (id() == kWorldId) release_name();
  if (has_running()) {
    group_->revoke(state.destroyed());
    group_->tell_failure();
  }
  group_->leave();
  if (self_driven()) {  // no later call may drive what is queued
    while (collectives_.drive()) {
    }
    MutexLock lock(queues_mutex_);  // message_queues() would need memory
    for (auto* side : {&send_queues_, &recv_queues_})
      for (auto& [peer, queue] : *side)
        while (queue.drive()) {
        }
  }
  ProgressEngine::get().release_idle();
}

// Makes the name free for the next world as soon as the first rank leaves this one.
void HostEngine::release_name() noexcept {
  world().begin_closing(group_->revoked());
  world().close_name();
}

std::vector<OpQueue*> HostEngine::message_queues() {
  std::vector<OpQueue*> queues;
  MutexLock lock(queues_mutex_);
  for (auto* side : {&send_queues_, &recv_queues_})
    for (auto& [peer, queue] : *side) queues.push_back(&queue);
  return queues;
}

// Messages have their own queues, for which the barrier of finalize() would not wait.
void HostEngine::drain_messages() {
  for (OpQueue* queue : message_queues())
    queue->drain(Deadline::never());  // every operation has a deadline of its own
}

void HostEngine::finalize() {
  drain_messages();
  if (id() == kWorldId || replaces_world_) {
    release_name();
    world().tell_of_finalize(id());
  }
  Call barrier;
  barrier.kind = OpKind::kFinalize;
  run(barrier);
  state.set_finalized();
}

bool HostEngine::progress(Deadline deadline) { return make_progress({&world()}, spins(), deadline); }

Failure HostEngine::failure() const {
  if (group_->revoked()) return group_->first_cause();
  Failure report;
  report.group = id();
  report.ranks = group_->silent_members(report.elapsed_ns);
  if (report.ranks.empty()) return report;
  report.code = DSC_ERR_PEER_STALLED;
  report.rank = report.ranks.front();
  char text[96];
  std::snprintf(text, sizeof text, " has not run for %.1f s",
                static_cast<double>(report.elapsed_ns) / kNsPerSecond);
  report.text = group_->describe_member(report.rank) + text;
  report.ranks = group_->shown_ranks(std::move(report.ranks));
  report.rank = report.ranks.front();
  return report;
}

}  // namespace dsc
