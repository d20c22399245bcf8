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
    identity.global_ranks.push_back(group.host().global_rank(rank));
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
      [&](const Error& error) {
        // If this rank fails because of its own error, the others must not wait for it. They detect the
        // failure of a peer themselves.
        const dsc_result_t code = error.code();
        if (code == DSC_ERR_NOMEM || code == DSC_ERR_NOSPACE || code == DSC_ERR_SYSTEM) group->leave();
        throw Error(error);
      });
  Call barrier;
  barrier.kind = OpKind::kReady;
  barrier.timeout_ms = static_cast<int>(std::clamp<int64_t>(deadline.remaining_ms(), 1, timeout_ms));
  engine->run(barrier);
  engine->collectives_.restart_sequence();
  group->withdraw();  // all members have mapped the segment of this rank
  return engine;
}

HostEngine::HostEngine(const std::shared_ptr<Group>& group, std::shared_ptr<const WorldInfo> info,
                       int timeout_ms)
    : GroupEngine(identity_of(*group), members_of(group), std::move(info), timeout_ms),
      group_(group),
      queues_by_peer_(2 * static_cast<size_t>(group->size())) {
  ProgressEngine::get();  // made here, where a lack of memory can be reported
}

OpQueue& HostEngine::queue_for(const Call& call) {
  if (!is_message(call.kind)) return collectives_;
  const bool sends = call.kind == OpKind::kSend;
  std::atomic<OpQueue*>& known = queues_by_peer_[2 * static_cast<size_t>(call.root) + (sends ? 0 : 1)];
  if (OpQueue* const queue = known.load(std::memory_order_acquire)) return *queue;
  MutexLock lock(queues_mutex_);
  OpQueue& queue = (sends ? send_queues_ : recv_queues_).try_emplace(call.root, *this).first->second;
  known.store(&queue, std::memory_order_release);
  return queue;
}

Failure HostEngine::refusal(const Operation& operation) const noexcept {
  Failure refusal = state.refusal(group_->revoked() ? group_->first_cause() : Failure{});
  name_operation(refusal, operation.call().kind, operation.sequence());
  return refusal;
}

// In a part of a larger communicator the text stays as it is, because the larger communicator adds the name
// of its own operation.
void HostEngine::name_operation(Failure& failure, OpKind kind, uint64_t sequence) const noexcept {
  if (!group_->is_part()) return state.name_operation(failure, op_kind_name(kind), sequence);
  failure.operation = op_kind_name(kind);
  failure.sequence = sequence;
}

std::optional<Failure> HostEngine::finish(Operation& operation, Progress progress) noexcept {
  const Call& call = operation.call();
  if (operation.found().count > 0) state.nonfinite->add(call.kind, operation.sequence(), operation.found());
  if (progress == Progress::kDone) {
    const int64_t end = operation.end_ticks();
    operation.end(end, DSC_OK);
    const int64_t met = operation.met_ticks();
    stats.add(call.kind, operation.bytes(), ticks_to_ns(met - operation.started_ticks()),
              ticks_to_ns(end - met));
    return std::nullopt;
  }
  std::optional<Failure> failure = operation.failure();
  operation.end(tick_now(), failure->code);
  if (failure->code != DSC_ERR_NONFINITE) {  // NONFINITE does not fail the group
    state.note_reported();
    group_->tell_failure();
  }
  name_operation(*failure, call.kind, operation.sequence());
  return failure;
}

Record HostEngine::record_locally(const Call& call, const Transfer& transfer, int64_t now) noexcept {
  const uint64_t sequence = has_no_sequence(call.kind) ? 0 : ++local_operations_;
  if (group_->is_part()) return {};
  Record record = group_->recorder().open(
      recorded_call(call, sequence, transfer.send_bytes, transfer.recv_bytes, state.timeout_ms(call)), now);
  record.start(now);
  record.meet(now);
  if (transfer.pattern != Pattern::kNothing) record.move_by(Algorithm::kLocal);
  return record;
}

// Throws NONFINITE if an input is not finite and the call asked for that check.
void HostEngine::move_checked(const Call& call, const Transfer& transfer) {
  const NonFinite found = move_locally(call, transfer);
  if (found.count == 0) return;
  state.nonfinite->add(call.kind, local_operations_, found);
  if (call.nonfinite != NonFiniteCheck::kFail) return;
  Failure failure;
  failure.code = DSC_ERR_NONFINITE;
  failure.index = found.index;
  failure.text = describe_found(found);
  throw Error(failure);
}

// Runs an operation in a group of one rank, without the queue, and throws its failure.
void HostEngine::run_locally(const Call& call) {
  const Transfer transfer(call, 0, 1);
  const int64_t start = tick_now();
  Record record = record_locally(call, transfer, start);
  capture([&] { move_checked(call, transfer); },
          [&](const Error& error) { fail_locally(call, record, start, error.failure()); });
  const int64_t end = tick_now();
  record.end(end, DSC_OK);
  stats.add(call.kind, transfer.send_bytes, 0, ticks_to_ns(end - start));
}

// A user-defined operation that fails also fails the communicator, as it does in a group of several ranks.
void HostEngine::fail_locally(const Call& call, Record& record, int64_t start, Failure failure) {
  const int64_t end = tick_now();
  record.end(end, failure.code);
  failure.ranks = {group_->shown_rank(0)};
  failure.has_user_ranks = group_->is_part();
  failure.set_group(id(), name());
  failure.operation = op_kind_name(call.kind);
  failure.sequence = has_no_sequence(call.kind) ? 0 : local_operations_;
  failure.elapsed_ns = ticks_to_ns(end - start);
  failure.revoked = failure.code == DSC_ERR_CALLBACK;
  if (failure.revoked) {
    state.note_reported();
    revoke(failure);
  }
  name_operation(failure, call.kind, failure.sequence);
  throw Error(failure);
}

bool HostEngine::is_alone() noexcept {
  return size() == 1 && !refuses() && !group_->revoked() && !collectives_.busy();
}

void HostEngine::run(const Call& call) {
  if (is_alone()) return run_locally(call);
  queue_for(call).run(call);
}

std::shared_ptr<Work> HostEngine::start(const Call& call) {
  if (!is_alone()) return queue_for(call).start(call);
  const auto work = std::make_shared<HostWork>(share(), collectives_, call);
  std::optional<Failure> failure = std::nullopt;
  capture([&] { run_locally(call); }, [&](const Error& error) { failure.emplace(error.failure()); });
  work->complete(failure);
  return work;
}

void HostEngine::revoke(const Failure& cause) noexcept {
  group_->revoke(cause);
  group_->tell_failure();
  state.fail_channels(cause);
  notifier().notify();  // wakes a recovery that was aborted
}

bool HostEngine::has_running() noexcept {
  if (running_.load() > 0 || collectives_.runs_alone()) return true;
  MutexLock lock(queues_mutex_);
  for (auto* side : {&send_queues_, &recv_queues_})
    for (const auto& [peer, queue] : *side)
      if (queue.runs_alone()) return true;
  return false;
}

// `leaving_` is set before the check. An operation that begins later therefore waits for the decision, and
// one that began earlier is seen. Other ranks do not see `leaving_`, because they would treat this rank as
// gone although it may still be busy.
void HostEngine::leave_if_idle() noexcept {
  leaving_.store(true);
  if (!has_running()) group_->leave_to_finalize();
  leaving_.store(false);
  leaving_.notify_all();
}

void HostEngine::leave() noexcept {
  if (!state.leave()) return;
  if (id() == kWorldId) release_name();
  if (has_running()) {
    group_->revoke(state.destroyed());
    group_->tell_failure();
  }
  group_->leave();
  if (self_driven()) {  // without a progress thread, no thread will drive the queues later
    while (collectives_.drive()) {
    }
    MutexLock lock(queues_mutex_);  // does not call message_queues(), which needs memory
    for (auto* side : {&send_queues_, &recv_queues_})
      for (auto& [peer, queue] : *side)
        while (queue.drive()) {
        }
  }
  ProgressEngine::get().release_idle();
}

// Frees the world's name for the next world as soon as the first rank leaves this world.
void HostEngine::release_name() noexcept {
  host().begin_closing(group_->revoked());
  host().close_name();
}

std::vector<OpQueue*> HostEngine::message_queues() {
  std::vector<OpQueue*> queues;
  MutexLock lock(queues_mutex_);
  for (auto* side : {&send_queues_, &recv_queues_})
    for (auto& [peer, queue] : *side) queues.push_back(&queue);
  return queues;
}

// Messages have their own queues, and the barrier of finalize() does not wait for those.
void HostEngine::drain_messages() {
  for (OpQueue* queue : message_queues())
    queue->drain(Deadline::never());  // every operation has its own deadline
}

void HostEngine::finalize() {
  drain_messages();
  if (id() == kWorldId || replaces_world_) {
    release_name();
    host().tell_of_finalize(id());
  }
  Call barrier;
  barrier.kind = OpKind::kFinalize;
  run(barrier);
  state.set_finalized();
}

bool HostEngine::progress(Deadline deadline) { return make_progress({&host()}, spins(), deadline); }

Failure HostEngine::failure() const {
  if (group_->revoked()) return group_->first_cause();
  Failure report;
  report.set_group(id(), name());
  report.ranks = group_->silent_members(report.elapsed_ns);
  if (report.ranks.empty()) return report;
  report.code = DSC_ERR_PEER_STALLED;
  report.text.add("%s has not run for %.1f s", group_->describe_member(report.rank()).c_str(),
                  static_cast<double>(report.elapsed_ns) / kNsPerSecond);
  for (int32_t& rank : report.ranks) rank = group_->shown_rank(rank);
  return report;
}

}  // namespace dsc
