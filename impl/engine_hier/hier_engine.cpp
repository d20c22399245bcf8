#include "engine_hier/hier_engine.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/describe.hpp"
#include "comm/packed_call.hpp"
#include "comm/transfer.hpp"
#include "dtype/dtype.hpp"
#include "engine_hier/call_comparison.hpp"
#include "engine_hier/hier_transfer.hpp"
#include "engine_hier/message.hpp"
#include "engine_host/operation.hpp"

namespace dsc {

std::shared_ptr<HierEngine> HierEngine::create(std::shared_ptr<HierWorld> world,
                                               std::shared_ptr<HostEngine> local, HierLayout layout,
                                               uint64_t id, std::string name, int timeout_ms,
                                               Deadline deadline) {
  std::shared_ptr<HierEngine> engine(
      new HierEngine(std::move(world), std::move(local), std::move(layout), id, std::move(name), timeout_ms));
  engine->connect(deadline);
  return engine;
}

HierEngine::HierEngine(std::shared_ptr<HierWorld> world, std::shared_ptr<HostEngine> local, HierLayout layout,
                       uint64_t id, std::string name, int timeout_ms)
    : GroupEngine({id, std::move(name), layout.rank(), layout.global_ranks()},
                  {local->state.local().group, layout.own_members()}, local->state.info(), timeout_ms),
      world_(std::move(world)),
      local_(std::move(local)),
      layout_(std::move(layout)),
      status_(*world_, layout_, local_->group(), state, revoked_),
      links_(*world_, layout_, state, status_, [this] { check_host(); }),
      context_{layout_, *local_, links_, status_, [this] { check_host(); }},
      queues_([this](const Call& call, uint64_t sequence) { return open_record(call, sequence); },
              [this](const Call& call, uint64_t sequence, std::optional<Record>& record) {
                return execute(call, sequence, record);
              },
              local_->host()) {
  local_->group().become_part_of({id, this->name(), layout_.global_ranks(), layout_.own_members()});
  local_->sleep_soon();
}

HierEngine::~HierEngine() {
  leave();
  world_->take_off(*this);
}

// The leaders connect to each other. Each leader sends the outcome to the ranks of its host, so that all
// ranks succeed or fail in the same way.
void HierEngine::connect(Deadline deadline) {
  HostOutcome outcome;
  // If the group has failed meanwhile, the error says only that its connections were ended, so the group's
  // failure is kept instead.
  const auto keep = [&](const Error& error) {
    outcome.fail(revoked_.load() ? failure() : in_group(error.failure()));
  };
  const bool opened = layout_.leads() && capture([&] { links_.open_leaders(); }, keep);
  world_->enlist(*this);
  if (opened) capture([&] { links_.connect_leaders(deadline); }, keep);
  outcome.tell_members(*local_, deadline);
}

// ---- operations

std::optional<std::string> HierEngine::unsupported_reason(const Call& call) const {
  return HierTransfer::unsupported_reason(call);
}

void HierEngine::run(const Call& call) {
  expect_supported(call);
  if (const auto failure = queues_.of(call).run(call)) throw Error(*failure);
}

std::shared_ptr<Work> HierEngine::start(const Call& call) {
  expect_supported(call);
  return queues_.of(call).start(call, id());
}

// An operation calls this when has_running() already counts it. Waits while leave_if_idle() decides whether
// this rank leaves.
std::optional<Failure> HierEngine::refusal() const noexcept {
  if (leaving_.load()) leaving_.wait(true);
  if (!state.has_left_or_finalizes() && !(revoked_.load() && state.reported())) return std::nullopt;
  MutexLock lock(mutex_);
  return state.refusal(cause_);
}

HierEngine::BufferBytes HierEngine::bytes_of(const Call& call) const noexcept {
  const size_t bytes = call.count * dtype_bytes(call.dtype);
  if (call.kind == OpKind::kSend) return {bytes, 0};
  if (call.kind == OpKind::kRecv) return {0, bytes};
  const Transfer transfer(call, rank(), size());
  return {transfer.send_bytes, transfer.recv_bytes};
}

// The user's operation is recorded once, by its own name, so that traces of several hosts can be matched. Its
// steps are not recorded: Operation::create() skips groups that are part of another group. A refused call is
// not recorded, because a program that continues after a failure would otherwise push the failure out of the
// recorder.
std::optional<Record> HierEngine::open_record(const Call& call, uint64_t sequence) noexcept {
  std::optional<Record> record;
  call_out([&] {
    if (refusal()) return;
    const BufferBytes bytes = bytes_of(call);
    record = local_->group().recorder().open(
        recorded_call(call, sequence, bytes.send, bytes.recv, state.timeout_ms(call)), tick_now());
  });
  return record;
}

std::optional<Failure> HierEngine::execute(const Call& call, uint64_t sequence,
                                           std::optional<Record>& record) noexcept {
  const int64_t start = tick_now();
  Record unrecorded;
  Record& own = record ? *record : unrecorded;
  std::optional<Failure> failure = refusal();
  if (!failure) {
    status_.note_begin(call, sequence);
    own.start(start);
    ArrivalMark arrival(own);
    capture([&] { perform(call, sequence, arrival); },
            [&](const Error& error) { failure = fail_operation(call, sequence, error, arrival); });
  }
  const int64_t end = tick_now();
  own.end(end, failure ? failure->code : DSC_OK);
  if (failure) {
    failure->elapsed_ns = ticks_to_ns(end - start);
    say_if_late(*failure, rank(), call.kind, sequence);
    state.name_operation(*failure, op_kind_name(call.kind), sequence);
    return failure;
  }
  status_.note_end(call, sequence);
  const BufferBytes bytes = bytes_of(call);
  stats.add(call.kind, std::max(bytes.send, bytes.recv), 0, ticks_to_ns(end - start));
  return std::nullopt;
}

void HierEngine::perform(const Call& call, uint64_t sequence, ArrivalMark& arrival) {
  if (!call.columns) return perform_packed(call, sequence, arrival);
  const PackedCall packed(call, rank(), size(), *state.scratch);
  perform_packed(packed.call(), sequence, arrival);
  packed.unpack();
}

void HierEngine::perform_packed(const Call& call, uint64_t sequence, ArrivalMark& arrival) {
  const Deadline deadline = Deadline::after_ms(state.timeout_ms(call));
  if (is_message(call.kind)) return run_message(call, sequence, arrival, deadline);
  links_.begin_collective(call.kind, sequence);
  InlineData inline_data(context_, call);
  const bool is_inline = inline_data.fits();
  const Deadline soonest = CallComparison(context_, is_inline ? &inline_data : nullptr, deadline)
                               .run(signature_of(call, id(), sequence), sequence);
  arrival.set();
  if (!is_inline) HierTransfer(context_, call, soonest).run();
}

void HierEngine::run_message(const Call& call, uint64_t sequence, ArrivalMark& arrival, Deadline deadline) {
  if (layout_.host_of(call.root) != layout_.own_host())
    return pass_message(links_, state, call, sequence, arrival, deadline);
  Call message = call;
  message.root = layout_.local_index_of(call.root);
  message.timeout_ms = static_cast<int32_t>(std::clamp<int64_t>(deadline.remaining_ms(), 1, INT32_MAX));
  local_->run(message);
}

// ---- leaving and finalizing

bool HierEngine::has_running() noexcept {
  bool running = false;
  call_out([&] { running = queues_.busy(); });
  return running;
}

// Ends all connections with PEER_LEFT, so that ranks of other hosts that wait for this rank learn why. Ranks
// that are not connected to this rank learn it from the announcement.
void HierEngine::tell_hosts(bool finalizes) noexcept {
  const GroupLeft left{id(), rank(), finalizes};
  links_.leave(failure_of(left));
  if (!revoked_.load() && !announced_.exchange(true)) world_->announce(*this, left);
}

void HierEngine::leave_if_idle() noexcept {
  if (state.is_closed()) return;
  world_->catch_up();
  if (!has_running()) publish_failure_of_host();  // a running operation publishes it with more detail
  if (revoked_.load()) return;
  leaving_.store(true);
  if (!has_running()) local_->leave_if_idle();
  leaving_.store(false);
  leaving_.notify_all();
  if (state.has_left_or_finalizes()) tell_hosts(true);
}

void HierEngine::leave() noexcept {
  const bool was_closed = state.is_closed();
  if (!was_closed) world_->catch_up();
  if (!state.leave()) return;
  if (!was_closed) publish_failure_of_host();
  if (has_running()) {
    revoke(state.destroyed());
    call_out([&] { queues_.drain(); });
  }
  local_->leave();
  if (!state.finalized()) tell_hosts(false);
  if (id() == kWorldId && revoked_.load()) world_->begin_closing();
}

void HierEngine::finalize() {
  queues_.drain();
  if (id() == kWorldId) {
    local_->host().tell_of_finalize(local_->id());
    world_->begin_end();
  }
  Call barrier;
  barrier.kind = OpKind::kFinalize;
  run(barrier);
  if (id() == kWorldId) world_->end_in_order();
  local_->finalize();
  state.set_finalized();
}

int32_t HierEngine::agree_on(int32_t) {
  fail(DSC_ERR_UNSUPPORTED, "not supported for a communicator with several hosts in this version");
}

std::shared_ptr<GroupEngine> HierEngine::shrink(const GroupOptions&) {
  fail(DSC_ERR_UNSUPPORTED,
       "not supported for a communicator with several hosts in this version; finalize the world and start "
       "again");
}

}  // namespace dsc
