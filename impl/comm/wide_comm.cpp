#include "comm/wide_comm.hpp"

#include <algorithm>
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/shown.hpp"
#include "comm/wide_move.hpp"
#include "control/group.hpp"
#include "host/operation.hpp"
#include "host/transfer.hpp"

namespace dsc {
std::shared_ptr<WideComm> WideComm::create(std::shared_ptr<WideWorld> world, std::shared_ptr<HostComm> local,
                                           WideLayout layout, uint64_t id, std::string name, int timeout_ms,
                                           Deadline deadline) {
  std::shared_ptr<WideComm> comm(
      new WideComm(std::move(world), std::move(local), std::move(layout), id, std::move(name), timeout_ms));
  comm->connect(deadline);
  return comm;
}

WideComm::WideComm(std::shared_ptr<WideWorld> world, std::shared_ptr<HostComm> local, WideLayout layout,
                   uint64_t id, std::string name, int timeout_ms)
    : world_(std::move(world)),
      local_(std::move(local)),
      layout_(std::move(layout)),
      id_(id),
      name_(std::move(name)),
      timeout_ms_(timeout_ms),
      collectives_([this](const Call& call, uint64_t number) { return execute(call, number); }, pulse_) {
  nonfinite->set_check(local_->nonfinite->check());
  local_->sleep_soon();
}

WideComm::~WideComm() {
  leave();
  world_->take_off(*this);
}

// Who is connected has read what this host had to say: many groups would fill the store.
void WideComm::connect_and_clear(Wire& wire, const std::string& prefix, int own, Deadline deadline) {
  Store& store = world_->store();
  const std::string key = prefix + "/" + std::to_string(own);
  capture([&] { wire.connect(store, prefix, deadline); },
          [&](const Error& error) {
            world_->forget_later(key);
            throw error;
          });
  store.remove(key, deadline);
}

// Who cannot have one says so, in place of what it would say to the others.
std::unique_ptr<Wire> WideComm::open_wire(const std::string& prefix, int own, std::vector<int32_t> members,
                                          Mesh::Members of) {
  std::unique_ptr<Wire> wire;
  capture([&] { wire = std::make_unique<Wire>(world_->transport(), own, std::move(members), of); },
          [&](const Error& error) {
            world_->refuse_wire(prefix, own, error);
            throw error;
          });
  return wire;
}

void WideComm::make_wire() {
  std::vector<int32_t> leaders;
  leaders.reserve(static_cast<size_t>(layout_.hosts()));
  for (int host = 0; host < layout_.hosts(); ++host) leaders.push_back(layout_.leader(host));
  wire_ = open_wire(wire_key(), layout_.own_host(), std::move(leaders), Mesh::Members::kLeaders);
  wire_->set_check([this](const std::vector<bool>& awaited) {
    check_host();
    report_late(waiting_, members_of(awaited));
  });
}

// The leaders, and then all ranks of each host know how it went.
void WideComm::connect(Deadline deadline) {
  Verdict verdict;
  const auto keep = [&](dsc_result_t code, const char* text) {
    verdict.code = code;
    std::snprintf(verdict.text, sizeof verdict.text, "%.507s", text);
  };
  if (layout_.leads()) capture([&] { make_wire(); }, keep);
  world_->enlist(*this);
  if (wire_) capture([&] { connect_and_clear(*wire_, wire_key(), layout_.own_host(), deadline); }, keep);
  tell_members(verdict, deadline);
}

int WideComm::global_rank(int group_rank) const {
  if (group_rank < 0 || group_rank >= size())
    fail(DSC_ERR_INVALID_ARG, "rank is %d, expected 0 to %d", group_rank, size() - 1);
  return layout_.job_ranks()[static_cast<size_t>(group_rank)];
}

int WideComm::group_rank(int global_rank) const noexcept {
  const auto& ranks = layout_.job_ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), global_rank);
  return found == ranks.end() ? kNoRank : static_cast<int>(found - ranks.begin());
}

// ---- operations
// ----------------------------------------------------------------------------------------------

WideLane& WideComm::lane_for(const Call& call) {
  if (call.kind != OpKind::kSend && call.kind != OpKind::kRecv) return collectives_;
  MutexLock lock(lanes_mutex_);
  auto& lanes = call.kind == OpKind::kSend ? send_lanes_ : recv_lanes_;
  const auto execute = [this](const Call& message, uint64_t number) {
    return this->execute(message, number);
  };
  return lanes.try_emplace(call.root, execute, pulse_).first->second;
}

void WideComm::run(const Call& call) {
  WideMove::check(call);
  const Failure failure = lane_for(call).run(call);
  if (failure.code != DSC_OK) fail_with(failure);
}

std::shared_ptr<Work> WideComm::start(const Call& call) {
  WideMove::check(call);
  return lane_for(call).start(call, id_);
}

std::optional<Failure> WideComm::refusal() const {
  Failure failure;
  failure.code = DSC_ERR_STATE;
  failure.group = id_;
  if (world_->ended())
    failure.text = "its world was finalized";
  else if (finalized_.load())
    failure.text = "the communicator was finalized";
  else if (left_.load())
    failure.text = "the communicator was destroyed";
  else if (!revoked_.load() || !told_.load())
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

std::string WideComm::describe(const Call& call, uint64_t number, const std::string& text) const {
  char where[160];
  std::snprintf(where, sizeof where,
                "%s number %" PRIu64 " of group \"%s\" on rank %d of %d: ", op_kind_name(call.kind), number,
                name_.c_str(), rank(), size());
  return where + text;
}

Failure WideComm::execute(const Call& call, uint64_t number) noexcept {
  const int64_t start = tick_now();
  Failure failure;
  if (capture([&] { failure = refusal().value_or(Failure{}); },
              [&](dsc_result_t code, const char*) { failure.code = code; }) &&
      failure.code == DSC_OK) {
    note_latest(call, number);
    std::optional<Error> error;
    if (!capture([&] { perform(call, number); }, [&](const Error& thrown) { error.emplace(thrown); }))
      failure = fail_operation(call, number, *error);
  }
  if (failure.code == DSC_OK) {
    note_done();
    stats_.add(call.kind, call.count * dtype_bytes(call.dtype), 0, ticks_to_ns(tick_now() - start));
    return failure;
  }
  failure.operation = op_kind_name(call.kind);
  failure.sequence = number;
  failure.elapsed_ns = ticks_to_ns(tick_now() - start);
  call_out([&] { failure.text = describe(call, number, failure.text); });
  return failure;
}

void WideComm::perform(const Call& call, uint64_t number) {
  const int timeout = call.timeout_ms > 0 ? call.timeout_ms : timeout_ms();
  const Deadline deadline = Deadline::after_ms(timeout);
  if (call.kind == OpKind::kSend || call.kind == OpKind::kRecv) return run_message(call, number, deadline);
  waiting_ = {call.kind, number, now_ns(), false};
  WideMove move(*this, call, deadline);
  const bool goes_along = move.goes_along();
  compare(call, number, deadline, goes_along ? &move : nullptr);
  if (!goes_along) move.run();
}

WideComm::Link& WideComm::link(int sender, int receiver, Waiting waiting, Deadline deadline) {
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
    MutexLock lock(mutex_);  // so that a failure of the group reaches it
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

void WideComm::run_message(const Call& call, uint64_t number, Deadline deadline) {
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
        ErrorPlace place = error.place();  // of the two ends
        place.revoked = true;
        for (int32_t i = 0; i < place.n_ranks; ++i) place.ranks[i] = ends[place.ranks[i] == 0 ? 0 : 1];
        throw Error(error.code(), error.what(), place);
      });
}

void WideComm::exchange_message(const Call& call, uint64_t number, Deadline deadline, Wire& wire) {
  const bool sends = call.kind == OpKind::kSend;
  Call neutral = call;  // both ends show the same
  neutral.kind = OpKind::kSend;
  neutral.root = -1;
  const Shown mine = show(neutral, id_, number);
  std::vector<std::string> texts;
  wire.meet({reinterpret_cast<const char*>(&mine), sizeof mine}, texts, deadline);
  const std::string& other = texts[sends ? 1 : 0];
  Shown theirs{};
  std::memcpy(&theirs, other.data(), std::min(other.size(), sizeof theirs));
  const std::string differs = difference({mine, theirs}, {{rank()}, {call.root}});
  if (!differs.empty()) fail(DSC_ERR_MISMATCH, "%s", differs.c_str());
  std::vector<WireBlock> out(2), in(2);
  const size_t bytes = call.count * dtype_bytes(call.dtype);
  if (sends)
    out[1] = {const_cast<void*>(call.send), bytes};
  else
    in[0] = {call.recv, bytes};
  wire.exchange(out, in, deadline);
}

// ---- the end
// ------------------------------------------------------------------------------------------------

std::vector<WideLane*> WideComm::lanes() {
  std::vector<WideLane*> all{&collectives_};
  MutexLock lock(lanes_mutex_);
  for (auto* side : {&send_lanes_, &recv_lanes_})
    for (auto& [peer, lane] : *side) all.push_back(&lane);
  return all;
}

// Beside that of the leaders; they stay as long as this.
std::vector<Wire*> WideComm::other_wires() {
  std::vector<Wire*> wires;
  MutexLock lock(mutex_);
  if (among_ranks_) wires.push_back(among_ranks_.get());
  for (const auto& [ends, link] : links_) wires.push_back(link->wire.get());
  return wires;
}

void WideComm::leave() noexcept {
  if (left_.exchange(true)) return;
  call_out([&] {
    const auto all = lanes();
    if (std::ranges::none_of(all, [](const WideLane* lane) { return lane->busy(); })) return;
    Failure cause;
    cause.code = DSC_ERR_REVOKED;
    cause.rank = rank();
    cause.group = id_;
    cause.operation = "destroy";
    cause.text =
        "rank " + std::to_string(rank()) + " destroyed the communicator while operations were running";
    revoke(cause);
    for (WideLane* lane : all) lane->drain();
  });
  local_->leave();
  if (wire_ && !finalized_.load()) {
    ErrorPlace place;
    place.revoked = true;  // its ranks are those of the group
    place.rank = place.ranks[0] = rank();
    place.n_ranks = 1;
    char text[64];
    std::snprintf(text, sizeof text, "rank %d has left", rank());
    wire_->abort(Error(DSC_ERR_PEER_LEFT, text, place));
  }
  MutexLock lock(mutex_);
  for (const auto& known : channels_)
    if (const auto channel = known.lock()) channel->leave();
}

void WideComm::finalize() {
  if (finalized_.load()) fail(DSC_ERR_STATE, "the communicator was finalized before");
  for (WideLane* lane : lanes()) lane->drain();
  if (id_ == kWorldId) {
    world_->begin_end();
    local_->world().leave_idle_groups(local_->id());
  }
  Call barrier;
  barrier.kind = OpKind::kFinalize;
  run(barrier);
  if (id_ == kWorldId) world_->end_in_order();
  local_->finalize();
  finalized_.store(true);
}

void WideComm::end_world() noexcept {
  world_->end();
  local_->end_world();
}

bool WideComm::progress(Deadline deadline) {
  const auto idle = [this] {
    return std::ranges::none_of(lanes(), [](const WideLane* lane) { return lane->busy(); });
  };
  const uint64_t seen = pulse_.count();
  if (!idle()) pulse_.wait(seen, deadline);
  return idle();
}

int32_t WideComm::agree_on(int32_t) { fail(DSC_ERR_UNSUPPORTED, "agree: not between hosts in this version"); }

std::shared_ptr<Comm> WideComm::shrink(const GroupOptions&) {
  fail(DSC_ERR_UNSUPPORTED, "shrink: not between hosts in this version; finalize and start again");
}

}  // namespace dsc
