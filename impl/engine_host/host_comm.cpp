#include "engine_host/host_comm.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <numeric>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/process_guard.hpp"
#include "comm/describe.hpp"
#include "comm/transfer.hpp"
#include "control/trace.hpp"
#include "dtype/reduce.hpp"
#include "engine_host/progress.hpp"

namespace dsc {
namespace {

Failure refused(const Group& group, dsc_result_t code, std::string text) {
  Failure failure;
  failure.code = code;
  failure.group = group.id();
  failure.text = std::move(text);
  return failure;
}

}  // namespace

std::shared_ptr<HostComm> HostComm::create_world(const std::shared_ptr<Group>& group, int timeout_ms,
                                                 Deadline deadline) {
  std::shared_ptr<HostComm> comm;
  capture(
      [&] {
        group->map_members(deadline, [] {});
        comm = std::make_shared<HostComm>(group, timeout_ms);
      },
      [&](dsc_result_t code, const char* text) {
        // The others must not wait for a rank that fails on its own. Failures of a peer they detect
        // themselves.
        if (code == DSC_ERR_NOMEM || code == DSC_ERR_NOSPACE || code == DSC_ERR_SYSTEM) group->leave();
        throw Error(code, text);
      });
  comm->set_timeout_ms(static_cast<int>(std::clamp<int64_t>(deadline.remaining_ms(), 1, timeout_ms)));
  Call barrier;
  barrier.kind = OpKind::kReady;
  comm->run(barrier);
  comm->set_timeout_ms(timeout_ms);
  comm->collectives_.restart_numbers();
  group->withdraw();  // all members have mapped it
  return comm;
}

HostComm::HostComm(std::shared_ptr<Group> group, int timeout_ms)
    : group_(std::move(group)), timeout_ms_(timeout_ms) {
  ProgressEngine::get();  // made here, where lack of memory can be reported
  group_->on_finalize([this] { leave_if_idle(); });
}

HostComm::~HostComm() {
  group_->on_finalize({});
  leave();
}

int HostComm::global_rank(int group_rank) const {
  if (group_rank < 0 || group_rank >= size())
    fail(DSC_ERR_INVALID_ARG, "rank is %d, expected 0 to %d", group_rank, size() - 1);
  return group_->world().global_rank(group_->local_rank(group_rank));
}

int HostComm::group_rank(int global_rank) const noexcept {
  const auto& ranks = group_->local_ranks();
  const auto found = std::find_if(ranks.begin(), ranks.end(), [&](int32_t rank) {
    return group_->world().global_rank(rank) == global_rank;
  });
  return found == ranks.end() ? kNoRank : static_cast<int>(found - ranks.begin());
}

LocalMembers HostComm::local_members() const {
  std::vector<int32_t> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {group_, std::move(ranks)};
}

OpQueue& HostComm::queue_for(const Call& call) {
  if (call.kind != OpKind::kSend && call.kind != OpKind::kRecv) return collectives_;
  MutexLock lock(queues_mutex_);
  auto& queues = call.kind == OpKind::kSend ? send_queues_ : recv_queues_;
  return queues.try_emplace(call.root, *this).first->second;
}

bool HostComm::refuses() const noexcept { return over() || (reported_.load() && group_->revoked()); }

bool HostComm::is_over() const noexcept {
  return left_.load() || finalized_.load() || group_->world().ended();
}

const char* HostComm::why_over() const noexcept {
  if (group_->world().ended()) return "its world was finalized";
  if (finalized_.load()) return "the communicator was finalized";
  return left_.load() ? "the communicator was destroyed" : "this rank finalizes the world";
}

// Must not throw, because the caller holds its queue.
Failure HostComm::refusal(const Operation& operation) const noexcept {
  Failure refusal;
  refusal.code = over() ? DSC_ERR_STATE : DSC_ERR_REVOKED;
  call_out([&] { refusal = described_refusal(operation); });  // without memory only the code is kept
  return refusal;
}

Failure HostComm::described_refusal(const Operation& operation) const {
  Failure failure;
  if (over()) {
    failure = refused(*group_, DSC_ERR_STATE, why_over());
  } else {
    const Failure cause = group_->first_cause();
    failure = cause;
    failure.code = DSC_ERR_REVOKED;
    failure.text =
        "the communicator failed before: " + (cause.operation.empty() ? "" : cause.operation + ": ") +
        cause.text;
  }
  failure.operation = op_kind_name(operation.call().kind);
  failure.sequence = operation.sequence();
  failure.text = describe_failure(operation.call().kind, operation.sequence(), failure.text);
  return failure;
}

std::optional<Failure> HostComm::settle(Operation& operation, Progress progress) noexcept {
  const int64_t end = tick_now();
  operation.end(end, progress == Progress::kDone ? DSC_OK : operation.failure().code);
  if (operation.found().count > 0)
    nonfinite->add(operation.call().kind, operation.sequence(), operation.found());
  if (progress == Progress::kDone) {
    const int64_t met = operation.met_ticks();
    stats_.add(operation.call().kind, operation.bytes(), ticks_to_ns(met - operation.started_ticks()),
               ticks_to_ns(end - met));
    return std::nullopt;
  }
  if (operation.failure().code != DSC_ERR_NONFINITE) {  // which does not fail the group
    reported_.store(true);
    group_->tell_failure();
  }
  Failure failure;
  failure.code = operation.failure().code;
  call_out([&] {
    failure = operation.failure();
    failure.text = describe_failure(operation.call().kind, operation.sequence(), failure.text);
  });
  return failure;
}

std::string HostComm::describe_failure(OpKind kind, uint64_t sequence, const std::string& text) const {
  char where[160];
  std::snprintf(where, sizeof where,
                "%s number %" PRIu64 " of group \"%s\" on rank %d of %d: ", op_kind_name(kind), sequence,
                name().c_str(), rank(), size());
  return where + text;
}

Record HostComm::record_locally(const Call& call, const Transfer& transfer, int64_t now) noexcept {
  const uint64_t number = comes_before_numbers(call.kind) ? 0 : ++local_operations_;
  if (group_->is_part()) return {};
  Record record = group_->recorder().open(
      recorded_call(call, number, transfer.send_bytes, transfer.recv_bytes, timeout_ms(call)), now);
  record.start(now);
  record.meet(now);
  if (transfer.pattern != Pattern::kNothing) record.move_by(Algorithm::kLocal);
  return record;
}

void HostComm::move_locally(const Call& call, const Transfer& transfer, Failure& failure) {
  if (!transfer.reduces()) {
    if (transfer.pattern != Pattern::kNothing && call.send != call.recv)
      copy(call.recv, call.send, transfer.send_bytes, false);
    return;
  }
  const void* source = call.send;
  void* target = call.recv;
  NonFinite found;
  const bool checks = call.nonfinite != NonFiniteCheck::kOff;
  // This also applies in place, because results hold NaN and true in one canonical form.
  const bool may_change = !call.user && (is_floating(call.dtype) || call.dtype == DSC_DTYPE_BOOL);
  if (source != target || may_change || checks)
    reduce(transfer.reduce, &source, 1, &target, 1, transfer.longest, checks ? &found : nullptr);
  if (found.count == 0) return;
  nonfinite->add(call.kind, local_operations_, found);
  if (call.nonfinite != NonFiniteCheck::kFail) return;
  failure.code = DSC_ERR_NONFINITE;
  failure.index = found.index;
  failure.text = describe_found(found);
}

// Runs an operation in a group of one rank, without the queue. As with more ranks, a user-defined operation
// that fails also fails the communicator.
std::optional<Failure> HostComm::run_locally(const Call& call) {
  const Transfer transfer(call, 0, 1);
  const int64_t start = tick_now();
  Record record = record_locally(call, transfer, start);
  Failure failure;
  capture([&] { move_locally(call, transfer, failure); },
          [&](dsc_result_t code, const char* text) {
            failure.code = code;
            call_out([&] { failure.text = text; });
          });
  const int64_t end = tick_now();
  record.end(end, failure.code);
  if (failure.code == DSC_OK) {
    stats_.add(call.kind, transfer.send_bytes, 0, ticks_to_ns(end - start));
    return std::nullopt;
  }
  failure.rank = 0;
  failure.group = id();
  failure.sequence = comes_before_numbers(call.kind) ? 0 : local_operations_;
  failure.elapsed_ns = ticks_to_ns(end - start);
  call_out([&] {
    failure.ranks = {0};
    failure.operation = op_kind_name(call.kind);
  });
  failure.revoked = failure.code == DSC_ERR_CALLBACK;
  if (failure.revoked) revoke(failure);
  call_out([&] { failure.text = describe_failure(call.kind, failure.sequence, failure.text); });
  return failure;
}

bool HostComm::is_alone() const noexcept {
  return size() == 1 && !refuses() && !group_->revoked() && !collectives_.busy();
}

void HostComm::run(const Call& call) {
  const std::optional<Failure> failure = is_alone() ? run_locally(call) : queue_for(call).run(call);
  if (failure) fail_with(*failure);
}

std::shared_ptr<Work> HostComm::start(const Call& call) {
  if (!is_alone()) return queue_for(call).start(call);
  const auto work = std::make_shared<HostWork>(share(), collectives_, call);
  work->complete(run_locally(call).value_or(Failure{}));
  return work;
}

void HostComm::abort() noexcept {
  Failure cause;
  cause.code = DSC_ERR_REVOKED;
  cause.rank = rank();
  call_out([&] {  // without memory only the code is kept
    cause.operation = "abort";
    cause.text = group_->describe_member(rank()) + " aborted the communicator";
  });
  revoke(cause);
  aborts_.fetch_add(1);
  notifier().notify();
}

void HostComm::revoke(const Failure& cause) noexcept {
  reported_.store(true);  // the caller knows the cause
  group_->revoke(cause);
  group_->tell_failure();
  MutexLock lock(channels_mutex_);
  for (const auto& known : channels_)
    if (const auto channel = known.lock()) channel->revoke(cause);
}

bool HostComm::has_running() noexcept {
  if (running_.load() > 0 || collectives_.runs_alone()) return true;
  MutexLock lock(queues_mutex_);
  for (auto* side : {&send_queues_, &recv_queues_})
    for (const auto& [peer, queue] : *side)
      if (queue.runs_alone()) return true;
  return false;
}

void HostComm::leave_if_idle() noexcept {
  if (!has_running()) group_->leave_to_finalize();
}

void HostComm::leave() noexcept {
  if (left_.exchange(true)) return;
  if (id() == kWorldId) release_name();
  if (has_running()) {
    Failure cause;
    cause.code = DSC_ERR_REVOKED;
    cause.rank = rank();
    call_out([&] {
      cause.operation = "destroy";
      cause.text =
          group_->describe_member(rank()) + " destroyed the communicator while operations were running";
    });
    group_->revoke(cause);
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
  {
    MutexLock lock(channels_mutex_);
    for (const auto& known : channels_)
      if (const auto channel = known.lock()) channel->leave();
  }
  ProgressEngine::get().release_idle();
}

// Makes the name free for the next world as soon as the first rank leaves this one.
void HostComm::release_name() noexcept {
  world().begin_closing(group_->revoked());
  world().close_name();
}

std::vector<OpQueue*> HostComm::message_queues() {
  std::vector<OpQueue*> queues;
  MutexLock lock(queues_mutex_);
  for (auto* side : {&send_queues_, &recv_queues_})
    for (auto& [peer, queue] : *side) queues.push_back(&queue);
  return queues;
}

// Messages have their own queues, for which the barrier of finalize() would not wait.
void HostComm::drain_messages() {
  for (OpQueue* queue : message_queues())
    queue->drain(Deadline::never());  // every operation has a deadline of its own
}

void HostComm::finalize() {
  if (finalized_.load()) fail(DSC_ERR_STATE, "the communicator was finalized before");
  drain_messages();
  if (id() == kWorldId || replaces_world_) {
    release_name();
    world().tell_of_finalize(id());
  }
  Call barrier;
  barrier.kind = OpKind::kFinalize;
  run(barrier);
  finalized_.store(true);
}

bool HostComm::progress(Deadline deadline) { return make_progress({&world()}, spins(), deadline); }

Failure HostComm::failure() const {
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
  return report;
}

std::string HostComm::trace(const char* reason) const {
  World& world = group_->world();
  return trace_text(world, world.groups(), reason);
}

std::string HostComm::trace_path() const {
  const World& world = group_->world();
  return world.trace_folder().empty()
             ? ""
             : dsc::trace_path(world.trace_folder(), world.global_rank(world.rank()));
}

}  // namespace dsc
