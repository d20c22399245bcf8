#include "engine_hier/hier_comm.hpp"

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
std::shared_ptr<HierComm> HierComm::create(std::shared_ptr<HierWorld> world, std::shared_ptr<HostComm> local,
                                           HierLayout layout, uint64_t id, std::string name, int timeout_ms,
                                           Deadline deadline) {
  std::shared_ptr<HierComm> comm(
      new HierComm(std::move(world), std::move(local), std::move(layout), id, std::move(name), timeout_ms));
  comm->connect(deadline);
  return comm;
}

HierComm::HierComm(std::shared_ptr<HierWorld> world, std::shared_ptr<HostComm> local, HierLayout layout,
                   uint64_t id, std::string name, int timeout_ms)
    : world_(std::move(world)),
      local_(std::move(local)),
      layout_(std::move(layout)),
      id_(id),
      name_(std::move(name)),
      timeout_ms_(timeout_ms),
      collectives_(opener(), executor(), completions_) {
  nonfinite->set_check(local_->nonfinite->check());
  local_->group().become_part_of({id_, name_, layout_.global_ranks()});
  local_->sleep_soon();
  local_->group().on_finalize([this] { leave_if_idle(); });
}

HierComm::~HierComm() {
  local_->group().on_finalize({});
  leave();
  world_->take_off(*this);
}

// Removes this host's key once all are connected and have read it, because the keys of many groups would
// fill the store. After an error the key is removed later: other hosts may still have to read it.
void HierComm::connect_and_clear(TransportGroup& wire, const std::string& prefix, int own,
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
std::unique_ptr<TransportGroup> HierComm::open_wire(const std::string& prefix, int own,
                                                    std::vector<int32_t> members, Mesh::Members of) {
  std::unique_ptr<TransportGroup> wire;
  capture([&] { wire = std::make_unique<TransportGroup>(world_->transport(), own, std::move(members), of); },
          [&](const Error& error) {
            world_->refuse_wire(prefix, own, error);
            throw error;
          });
  return wire;
}

void HierComm::make_wire() {
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
void HierComm::connect(Deadline deadline) {
  Outcome outcome;
  const auto keep = [&](dsc_result_t code, const char* text) { outcome.fail(code, text); };
  if (layout_.leads()) capture([&] { make_wire(); }, keep);
  world_->enlist(*this);
  if (transport_)
    capture([&] { connect_and_clear(*transport_, wire_key(), layout_.own_host(), deadline); }, keep);
  tell_members(outcome, deadline);
}

int HierComm::global_rank(int group_rank) const {
  if (group_rank < 0 || group_rank >= size())
    fail(DSC_ERR_INVALID_ARG, "rank is %d, expected 0 to %d", group_rank, size() - 1);
  return layout_.global_ranks()[static_cast<size_t>(group_rank)];
}

int HierComm::group_rank(int global_rank) const noexcept {
  const auto& ranks = layout_.global_ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), global_rank);
  return found == ranks.end() ? kNoRank : static_cast<int>(found - ranks.begin());
}

// ---- operations

HierQueue& HierComm::queue_for(const Call& call) {
  if (call.kind != OpKind::kSend && call.kind != OpKind::kRecv) return collectives_;
  MutexLock lock(queues_mutex_);
  auto& queues = call.kind == OpKind::kSend ? send_queues_ : recv_queues_;
  return queues.try_emplace(call.root, opener(), executor(), completions_).first->second;
}

void HierComm::run(const Call& call) {
  HierTransfer::check(call);
  const Failure failure = queue_for(call).run(call);
  if (failure.code != DSC_OK) fail_with(failure);
}

std::shared_ptr<Work> HierComm::start(const Call& call) {
  HierTransfer::check(call);
  return queue_for(call).start(call, id_);
}

std::optional<Failure> HierComm::refusal() const {
  Failure failure;
  failure.code = DSC_ERR_STATE;
  failure.group = id_;
  if (world_->ended())
    failure.text = "its world was finalized";
  else if (finalized_.load())
    failure.text = "the communicator was finalized";
  else if (left_.load())
    failure.text = "the communicator was destroyed";
  else if (local_->group().has_left(local_->rank()))
    failure.text = "this rank finalizes the world";
  else if (!revoked_.load() || !reported_.load())
    return std::nullopt;
  else {
    MutexLock lock(mutex_);
    failure = cause_;
    failure.code = DSC_ERR_REVOKED;
    failure.text =
        "the communicator failed before: " + (cause_.operation.empty() ? "" : cause_.operation + ": ") +
        cause_.text;
  }
  return failure;
}

std::string HierComm::describe(const Call& call, uint64_t number, const std::string& text) const {
  char where[160];
  std::snprintf(where, sizeof where,
                "%s number %" PRIu64 " of group \"%s\" on rank %d of %d: ", op_kind_name(call.kind), number,
                name_.c_str(), rank(), size());
  return where + text;
}

HierQueue::Open HierComm::opener() {
  return [this](const Call& call, uint64_t number) { return open_record(call, number); };
}

HierQueue::Execute HierComm::executor() {
  return [this](const Call& call, uint64_t number, std::optional<Record>& record) {
    return execute(call, number, record);
  };
}

HierComm::BufferBytes HierComm::bytes_of(const Call& call) const noexcept {
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
std::optional<Record> HierComm::open_record(const Call& call, uint64_t number) noexcept {
  std::optional<Record> record;
  call_out([&] {
    if (refusal()) return;
    const int timeout = call.timeout_ms > 0 ? call.timeout_ms : timeout_ms();
    const BufferBytes bytes = bytes_of(call);
    record = local_->group().recorder().open(recorded_call(call, number, bytes.send, bytes.recv, timeout),
                                             tick_now());
  });
  return record;
}

Failure HierComm::execute(const Call& call, uint64_t number, std::optional<Record>& record) noexcept {
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
    stats_.add(call.kind, std::max(bytes.send, bytes.recv), 0, ticks_to_ns(tick_now() - start));
    return failure;
  }
  failure.operation = op_kind_name(call.kind);
  failure.sequence = number;
  failure.elapsed_ns = ticks_to_ns(tick_now() - start);
  call_out([&] { failure.text = describe(call, number, failure.text); });
  return failure;
}

void HierComm::perform(const Call& call, uint64_t number, Record& record) {
  const int timeout = call.timeout_ms > 0 ? call.timeout_ms : timeout_ms();
  const Deadline deadline = Deadline::after_ms(timeout);
  if (call.kind == OpKind::kSend || call.kind == OpKind::kRecv) return run_message(call, number, deadline);
  waiting_ = {call.kind, number, now_ns(), false};
  HierTransfer move(*this, call, deadline);
  const bool goes_along = move.goes_along();
  compare(call, number, deadline, goes_along ? &move : nullptr);
  record.meet(tick_now());
  if (!goes_along) move.run();
}

HierComm::Link& HierComm::link(int sender, int receiver, Waiting waiting, Deadline deadline) {
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

void HierComm::run_message(const Call& call, uint64_t number, Deadline deadline) {
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

void HierComm::exchange_message(const Call& call, uint64_t number, Deadline deadline, TransportGroup& wire) {
  const bool sends = call.kind == OpKind::kSend;
  Call neutral = call;  // both ends must compute the same fingerprint
  neutral.kind = OpKind::kSend;
  neutral.root = -1;
  const CallSignature mine = signature_of(neutral, id_, number);
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

std::vector<HierQueue*> HierComm::queues() {
  std::vector<HierQueue*> all{&collectives_};
  MutexLock lock(queues_mutex_);
  for (auto* side : {&send_queues_, &recv_queues_})
    for (auto& [peer, queue] : *side) all.push_back(&queue);
  return all;
}

// Returns all transport groups except that of the leaders. They exist as long as this communicator.
std::vector<TransportGroup*> HierComm::other_wires() {
  std::vector<TransportGroup*> wires;
  MutexLock lock(mutex_);
  if (among_ranks_) wires.push_back(among_ranks_.get());
  for (const auto& [ends, link] : links_) wires.push_back(link->wire.get());
  return wires;
}

bool HierComm::is_idle() {
  return std::ranges::none_of(queues(), [](const HierQueue* queue) { return queue->busy(); });
}

// Ends all connections with PEER_LEFT, so that ranks of other hosts that wait for this one learn why.
void HierComm::tell_hosts(const char* text) noexcept {
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

void HierComm::leave_if_idle() noexcept {
  call_out([&] {
    if (left_.load() || finalized_.load() || revoked_.load() || !is_idle()) return;
    local_->leave_if_idle();
    tell_hosts(" finalizes the world, and takes part in no other operation");
  });
}

void HierComm::leave() noexcept {
  if (left_.exchange(true)) return;
  call_out([&] {
    if (is_idle()) return;
    Failure cause;
    cause.code = DSC_ERR_REVOKED;
    cause.rank = rank();
    cause.group = id_;
    cause.operation = "destroy";
    cause.text =
        "rank " + std::to_string(rank()) + " destroyed the communicator while operations were running";
    revoke(cause);
    for (HierQueue* queue : queues()) queue->drain();
  });
  local_->leave();
  if (!finalized_.load()) tell_hosts(" has left");
  if (id_ == kWorldId && revoked_.load()) world_->begin_closing();
  MutexLock lock(mutex_);
  for (const auto& known : channels_)
    if (const auto channel = known.lock()) channel->leave();
}

void HierComm::finalize() {
  if (finalized_.load()) fail(DSC_ERR_STATE, "the communicator was finalized before");
  for (HierQueue* queue : queues()) queue->drain();
  if (id_ == kWorldId) {
    world_->begin_end();
    local_->world().tell_of_finalize(local_->id());
  }
  Call barrier;
  barrier.kind = OpKind::kFinalize;
  run(barrier);
  if (id_ == kWorldId) world_->end_in_order();
  local_->finalize();
  finalized_.store(true);
}

void HierComm::end_world() noexcept {
  world_->end();
  local_->end_world();
}

bool HierComm::progress(Deadline deadline) {
  const auto none_left = [&] {
    return std::ranges::none_of(queues(), [](const HierQueue* queue) { return queue->has_left(); });
  };
  const uint64_t seen = completions_.count();
  if (!none_left()) completions_.wait(seen, deadline);
  return none_left();
}

int32_t HierComm::agree_on(int32_t) { fail(DSC_ERR_UNSUPPORTED, "agree: not between hosts in this version"); }

std::shared_ptr<Comm> HierComm::shrink(const GroupOptions&) {
  fail(DSC_ERR_UNSUPPORTED, "shrink: not between hosts in this version; finalize and start again");
}

}  // namespace dsc
