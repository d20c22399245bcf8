#include "engine_hier/hier_engine.hpp"

#include <algorithm>
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/call_signature.hpp"
#include "comm/transfer.hpp"
#include "control/group.hpp"
#include "engine_hier/hier_transfer.hpp"
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
      collectives_(opener(), executor(), completions_) {
  local_->group().become_part_of({id, this->name(), layout_.global_ranks(), layout_.own_members()});
  local_->sleep_soon();
}

HierEngine::~HierEngine() {
  leave();
  world_->take_off(*this);
}

// Removes this host's key once all are connected and have read it, because the keys of many groups would
// fill the store. After an error the key is removed later: other hosts may still have to read it.
void HierEngine::connect_and_clear(TransportGroup& wire, const std::string& prefix, int own,
                                   Deadline deadline) {
  Store& store = world_->store();
  const std::string key = prefix + "/" + std::to_string(own);
  capture([&] { wire.connect(store, prefix, deadline); },
          [&](const Error& error) {
            world_->forget_later(key);
            throw error;
          });
  store.remove(key, deadline);
}

// If this host cannot open its end, it publishes the error in place of its address, so that the others fail
// with the same cause and do not wait for it.
std::unique_ptr<TransportGroup> HierEngine::open_wire(const std::string& prefix, int own,
                                                      std::vector<int32_t> members, Mesh::Members of) {
  std::unique_ptr<TransportGroup> wire;
  capture([&] { wire = std::make_unique<TransportGroup>(world_->transport(), own, std::move(members), of); },
          [&](const Error& error) {
            world_->refuse_wire(prefix, own, error);
            throw error;
          });
  return wire;
}

void HierEngine::make_wire() {
  std::vector<int32_t> leaders;
  leaders.reserve(static_cast<size_t>(layout_.hosts()));
  for (int host = 0; host < layout_.hosts(); ++host) leaders.push_back(layout_.leader(host));
  transport_ = open_wire(wire_key(), layout_.own_host(), std::move(leaders), Mesh::Members::kLeaders);
  transport_->set_check([this](const std::vector<bool>& awaited) {
    check_host();
    report_late(waiting_, members_of(awaited));
  });
}

// The leaders connect, and each tells the ranks of its host how that went, so that they succeed or fail
// alike.
void HierEngine::connect(Deadline deadline) {
  Outcome outcome;
  const auto keep = [&](dsc_result_t code, const char* text) { outcome.fail(code, text); };
  if (layout_.leads()) capture([&] { make_wire(); }, keep);
  world_->enlist(*this);
  if (transport_)
    capture([&] { connect_and_clear(*transport_, wire_key(), layout_.own_host(), deadline); }, keep);
  tell_members(outcome, deadline);
}

// ---- operations

HierQueue& HierEngine::queue_for(const Call& call) {
  if (call.kind != OpKind::kSend && call.kind != OpKind::kRecv) return collectives_;
  MutexLock lock(queues_mutex_);
  auto& queues = call.kind == OpKind::kSend ? send_queues_ : recv_queues_;
  return queues.try_emplace(call.root, opener(), executor(), completions_).first->second;
}

void HierEngine::run(const Call& call) {
  HierTransfer::check(call);
  const Failure failure = queue_for(call).run(call);
  if (failure.code != DSC_OK) fail_with(failure);
}

std::shared_ptr<Work> HierEngine::start(const Call& call) {
  HierTransfer::check(call);
  return queue_for(call).start(call, id());
}

std::optional<Failure> HierEngine::refusal() const {
  if (!state.takes_no_part() && !(revoked_.load() && state.reported())) return std::nullopt;
  MutexLock lock(mutex_);
  return state.refusal(cause_);
}

HierQueue::Open HierEngine::opener() {
  return [this](const Call& call, uint64_t number) { return open_record(call, number); };
}

HierQueue::Execute HierEngine::executor() {
  return [this](const Call& call, uint64_t number, std::optional<Record>& record) {
    return execute(call, number, record);
  };
}

HierEngine::BufferBytes HierEngine::bytes_of(const Call& call) const noexcept {
  const size_t bytes = call.count * dtype_bytes(call.dtype);
  if (call.kind == OpKind::kSend) return {bytes, 0};
  if (call.kind == OpKind::kRecv) return {0, bytes};
  const Transfer transfer(call, rank(), size());
  return {transfer.send_bytes, transfer.recv_bytes};
}

// The user's operation is recorded once, by its own name, so that traces of several hosts can be matched.
// The steps below it are not recorded, because Operation::create() leaves out groups that are a part of
// another one. What is refused is not recorded: a program that goes on after a failure would push out the
// failure.
std::optional<Record> HierEngine::open_record(const Call& call, uint64_t number) noexcept {
  std::optional<Record> record;
  call_out([&] {
    if (refusal()) return;
    const BufferBytes bytes = bytes_of(call);
    record = local_->group().recorder().open(
        recorded_call(call, number, bytes.send, bytes.recv, state.timeout_ms(call)), tick_now());
  });
  return record;
}

Failure HierEngine::execute(const Call& call, uint64_t number, std::optional<Record>& record) noexcept {
  const int64_t start = tick_now();
  Record unrecorded;
  Record& own = record ? *record : unrecorded;
  Failure failure;
  if (capture([&] { failure = refusal().value_or(Failure{}); },
              [&](dsc_result_t code, const char*) { failure.code = code; }) &&
      failure.code == DSC_OK) {
    note_latest(call, number);
    own.start(start);
    std::optional<Error> error;
    if (!capture([&] { perform(call, number, own); }, [&](const Error& thrown) { error.emplace(thrown); }))
      failure = fail_operation(call, number, *error);
  }
  own.end(tick_now(), failure.code);
  if (failure.code == DSC_OK) {
    note_done();
    const BufferBytes bytes = bytes_of(call);
    stats.add(call.kind, std::max(bytes.send, bytes.recv), 0, ticks_to_ns(tick_now() - start));
    return failure;
  }
  failure.operation = op_kind_name(call.kind);
  failure.sequence = number;
  failure.elapsed_ns = ticks_to_ns(tick_now() - start);
  call_out([&] { failure.text = state.describe(call.kind, number, failure.text); });
  return failure;
}

void HierEngine::perform(const Call& call, uint64_t number, Record& record) {
  const Deadline deadline = Deadline::after_ms(state.timeout_ms(call));
  if (call.kind == OpKind::kSend || call.kind == OpKind::kRecv) return run_message(call, number, deadline);
  waiting_ = {call.kind, number, now_ns(), false};
  HierTransfer move(*this, call, deadline);
  const bool goes_along = move.goes_along();
  compare(call, number, deadline, goes_along ? &move : nullptr);
  record.meet(tick_now());
  if (!goes_along) move.run();
}

HierEngine::Link& HierEngine::link(int sender, int receiver, Waiting waiting, Deadline deadline) {
  const bool sends = sender == rank();
  {
    MutexLock lock(mutex_);
    const auto found = links_.find({sender, receiver});
    if (found != links_.end()) {
      found->second->waiting = waiting;
      return *found->second;
    }
  }
  auto made = std::make_unique<Link>();
  const std::string key = wire_key() + "/" + std::to_string(sender) + "-" + std::to_string(receiver);
  made->wire = open_wire(key, sends ? 0 : 1, {sender, receiver}, Mesh::Members::kRanks);
  Link& link = *made;
  link.waiting = waiting;
  {
    MutexLock lock(mutex_);  // stored before it connects, so that a failure of the group aborts it
    links_[{sender, receiver}] = std::move(made);
  }
  if (revoked_.load()) link.wire->abort();
  link.wire->set_check([this, &link, other = sends ? receiver : sender](const std::vector<bool>&) {
    check_host();
    report_late(link.waiting, {other});
  });
  connect_and_clear(*link.wire, key, sends ? 0 : 1, deadline);
  return link;
}

void HierEngine::run_message(const Call& call, uint64_t number, Deadline deadline) {
  const bool sends = call.kind == OpKind::kSend;
  if (layout_.host_of(call.root) == layout_.own_host()) {
    Call message = call;
    message.root = layout_.place_of(call.root);
    message.timeout_ms = static_cast<int32_t>(std::clamp<int64_t>(deadline.remaining_ms(), 1, INT32_MAX));
    return local_->run(message);
  }
  const int ends[] = {sends ? rank() : call.root, sends ? call.root : rank()};
  capture(
      [&] {
        Link& to_peer = link(ends[0], ends[1], {call.kind, number, now_ns(), false}, deadline);
        exchange_message(call, number, deadline, *to_peer.wire);
      },
      [&](const Error& error) {
        ErrorPlace place = error.place();
        if (place.revoked) throw error;  // its ranks are those of the group already
        place.revoked = true;
        for (int32_t i = 0; i < place.n_ranks; ++i) place.ranks[i] = ends[place.ranks[i] == 0 ? 0 : 1];
        throw Error(error.code(), error.what(), place);
      });
}

void HierEngine::exchange_message(const Call& call, uint64_t number, Deadline deadline,
                                  TransportGroup& wire) {
  const bool sends = call.kind == OpKind::kSend;
  Call neutral = call;  // both ends must compute the same fingerprint
  neutral.kind = OpKind::kSend;
  neutral.root = -1;
  const CallSignature mine = signature_of(neutral, id(), number);
  std::vector<std::string> texts;
  wire.meet({reinterpret_cast<const char*>(&mine), sizeof mine}, texts, deadline);
  const std::string& other = texts[sends ? 1 : 0];
  CallSignature theirs{};
  std::memcpy(&theirs, other.data(), std::min(other.size(), sizeof theirs));
  const CallDifference found = difference({mine, theirs}, {{rank()}, {call.root}});
  if (!found.text.empty()) {
    ErrorPlace place;
    place.revoked = true;  // marks the ranks as those of this group
    place.n_ranks = 2;
    std::tie(place.ranks[0], place.ranks[1]) = std::minmax(rank(), call.root);
    place.rank = place.ranks[0];
    throw Error(DSC_ERR_MISMATCH, found.text.c_str(), place);
  }
  std::vector<TransportBlock> out(2), in(2);
  const size_t bytes = call.count * dtype_bytes(call.dtype);
  if (sends)
    out[1] = {const_cast<void*>(call.send), bytes};
  else
    in[0] = {call.recv, bytes};
  wire.exchange(out, in, deadline);
}

// ---- leaving and finalizing

std::vector<HierQueue*> HierEngine::queues() {
  std::vector<HierQueue*> all{&collectives_};
  MutexLock lock(queues_mutex_);
  for (auto* side : {&send_queues_, &recv_queues_})
    for (auto& [peer, queue] : *side) all.push_back(&queue);
  return all;
}

// Returns all transport groups except that of the leaders. They exist as long as this communicator.
std::vector<TransportGroup*> HierEngine::other_wires() {
  std::vector<TransportGroup*> wires;
  MutexLock lock(mutex_);
  if (among_ranks_) wires.push_back(among_ranks_.get());
  for (const auto& [ends, link] : links_) wires.push_back(link->wire.get());
  return wires;
}

bool HierEngine::has_running() noexcept {
  bool running = false;
  call_out(
      [&] { running = std::ranges::any_of(queues(), [](const HierQueue* queue) { return queue->busy(); }); });
  return running;
}

// Ends all connections with PEER_LEFT, so that ranks of other hosts that wait for this one learn why.
void HierEngine::tell_hosts(const char* text) noexcept {
  ErrorPlace place;
  place.revoked = true;  // marks the ranks as those of the group
  place.rank = place.ranks[0] = rank();
  place.n_ranks = 1;
  call_out([&] {
    const Error error(DSC_ERR_PEER_LEFT, ("rank " + std::to_string(rank()) + text).c_str(), place);
    std::vector<TransportGroup*> wires = other_wires();
    if (transport_) wires.push_back(transport_.get());
    TransportGroup::abort_all(wires, error);
  });
}

void HierEngine::leave_if_idle() noexcept {
  if (state.is_over() || revoked_.load() || has_running()) return;
  local_->leave_if_idle();
  tell_hosts(" finalizes the world, and takes part in no other operation");
}

void HierEngine::leave() noexcept {
  if (!state.leave()) return;
  if (has_running()) {
    revoke(state.destroyed());
    call_out([&] {
      for (HierQueue* queue : queues()) queue->drain();
    });
  }
  local_->leave();
  if (!state.finalized()) tell_hosts(" has left");
  if (id() == kWorldId && revoked_.load()) world_->begin_closing();
  state.leave_channels();
}

void HierEngine::finalize() {
  for (HierQueue* queue : queues()) queue->drain();
  if (id() == kWorldId) {
    world_->begin_end();
    local_->world().tell_of_finalize(local_->id());
  }
  Call barrier;
  barrier.kind = OpKind::kFinalize;
  run(barrier);
  if (id() == kWorldId) world_->end_in_order();
  local_->finalize();
  state.set_finalized();
}

bool HierEngine::progress(Deadline deadline) {
  const auto none_left = [&] {
    return std::ranges::none_of(queues(), [](const HierQueue* queue) { return queue->has_left(); });
  };
  const uint64_t seen = completions_.count();
  if (!none_left()) completions_.wait(seen, deadline);
  return none_left();
}

int32_t HierEngine::agree_on(int32_t) {
  fail(DSC_ERR_UNSUPPORTED, "agree: not between hosts in this version");
}

std::shared_ptr<GroupEngine> HierEngine::shrink(const GroupOptions&) {
  fail(DSC_ERR_UNSUPPORTED, "shrink: not between hosts in this version; finalize and start again");
}

}  // namespace dsc
