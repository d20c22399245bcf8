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
namespace {

constexpr std::string_view kOfGroup =
    "group ";  // before the ranks of a failure, as the host engine is told of it
constexpr size_t kMostRankText = 24;

}  // namespace

std::shared_ptr<Transport> WideWorld::transport() {
  MutexLock lock(mutex_);
  if (!transport_) transport_ = std::make_shared<Transport>(load_wire(process_environment()), address);
  return transport_;
}

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
}

WideComm::~WideComm() { leave(); }

// Who is connected has read what this host had to say: many groups would fill the store.
void WideComm::connect_and_clear(Wire& wire, const std::string& prefix, int own, Deadline deadline) {
  Store& store = world_->job->store();
  wire.connect(store, prefix, deadline);
  store.remove(prefix + "/" + std::to_string(own), deadline);
}

// The leaders, and then all ranks of each host know how it went.
void WideComm::connect(Deadline deadline) {
  Verdict verdict;
  const auto keep = [&](dsc_result_t code, const char* text) {
    verdict.code = code;
    std::snprintf(verdict.text, sizeof verdict.text, "%.507s", text);
  };
  if (layout_.leads())
    capture(
        [&] {
          std::vector<int32_t> leaders;
          leaders.reserve(static_cast<size_t>(layout_.hosts()));
          for (int host = 0; host < layout_.hosts(); ++host) leaders.push_back(layout_.leader(host));
          wire_ = std::make_unique<Wire>(world_->transport(), layout_.own_host(), leaders);
          wire_->set_check([this] { check_host(); });
          connect_and_clear(*wire_, "wide/" + std::to_string(id_), layout_.own_host(), deadline);
        },
        keep);
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
  if (world_->ended.load())
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
    std::optional<Error> error;
    if (!capture([&] { perform(call, number); }, [&](const Error& thrown) { error.emplace(thrown); })) {
      revoke(cause_of(call, number, *error));
      told_.store(true);
      MutexLock lock(mutex_);
      failure = cause_;
    }
  }
  if (failure.code == DSC_OK) {
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
  compare(call, number, deadline);
  WideMove(*this, call, deadline).run();
}

Wire& WideComm::link(int sender, int receiver, Deadline deadline) {
  const bool sends = sender == rank();
  {
    MutexLock lock(mutex_);
    const auto found = links_.find({sender, receiver});
    if (found != links_.end()) return *found->second;
  }
  auto wire =
      std::make_unique<Wire>(world_->transport(), sends ? 0 : 1, std::vector<int32_t>{sender, receiver});
  Wire& link = *wire;
  {
    MutexLock lock(mutex_);  // so that a failure of the group reaches it
    links_[{sender, receiver}] = std::move(wire);
  }
  if (revoked_.load()) link.abort();
  link.set_check([this] { check_host(); });
  const std::string ends = std::to_string(sender) + "-" + std::to_string(receiver);
  connect_and_clear(link, "wide/" + std::to_string(id_) + "/" + ends, sends ? 0 : 1, deadline);
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
  capture([&] { exchange_message(call, number, deadline, link(ends[0], ends[1], deadline)); },
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
// -------------------------------------------------------------------------------------------------

namespace {

// What the host engine says of its own operation, without that operation's name, and with the ranks of the
// group.
std::string in_ranks_of_group(std::string text, const std::vector<int32_t>& members) {
  const size_t name = text.find(" of group \"");
  const size_t where = name == std::string::npos ? name : text.find(": ", name);
  if (where != std::string::npos) text.erase(0, where + 2);
  std::string result;
  constexpr std::string_view kRank = "rank ";
  for (size_t at = 0; at < text.size();) {
    size_t digits = 0;
    const bool is_rank = text.compare(at, kRank.size(), kRank) == 0;
    while (is_rank && std::isdigit(static_cast<unsigned char>(text[at + kRank.size() + digits])) != 0)
      ++digits;
    const size_t end = at + kRank.size() + digits;
    if (digits == 0 || digits > 4 || text.compare(end, 5, " (pid") != 0) {
      result += text[at++];
      continue;
    }
    const size_t place = std::stoul(text.substr(at + kRank.size(), digits));
    result += kRank;
    result += std::to_string(place < members.size() ? members[place] : -1);
    at = end;
  }
  return result;
}

}  // namespace

// The wire waits for other hosts; what happens on this one ends it.
void WideComm::check_host() const {
  Group& group = local_->group();
  if (!group.revoked()) return;
  const Failure local = in_group(group.first_cause());
  ErrorPlace place = place_of(local);
  place.revoked = true;  // its ranks are those of the group
  place.operation[0] = '\0';
  throw Error(local.code, local.text.c_str(), place);
}

// A failure of the ranks of this host, in the group's numbers. One that came from the group has them already.
Failure WideComm::in_group(Failure local) const {
  const auto& members = layout_.own_members();
  if (local.operation.starts_with(kOfGroup)) {
    local.ranks.clear();
    for (size_t at = kOfGroup.size(); at < local.operation.size();) {
      local.ranks.push_back(std::atoi(&local.operation[at]));
      at = std::min(local.operation.find(' ', at), local.operation.size() - 1) + 1;
    }
  } else {
    for (int32_t& rank : local.ranks)
      if (rank >= 0 && rank < static_cast<int32_t>(members.size())) rank = members[static_cast<size_t>(rank)];
    local.text = in_ranks_of_group(std::move(local.text), members);
  }
  local.rank = local.ranks.empty() ? kNoRank : local.ranks.front();
  return local;
}

// The wire names hosts, the host engine its members of this host; the group names its ranks.
Failure WideComm::cause_of(const Call& call, uint64_t number, const Error& error) const {
  const ErrorPlace& place = error.place();
  Failure cause;
  const bool of_host = place.operation[0] != '\0';  // the host engine says which
  if (of_host && local_->group().revoked()) {
    cause = in_group(local_->group().first_cause());
  } else {
    cause.code = error.code();
    cause.ranks.assign(place.ranks, place.ranks + place.n_ranks);
    cause.text = error.what();
    if (of_host) cause = in_group(std::move(cause));
    for (int32_t& rank : cause.ranks)
      if (!of_host && !place.revoked && rank >= 0 && rank < layout_.hosts()) rank = layout_.leader(rank);
    cause.rank = cause.ranks.empty() ? kNoRank : cause.ranks.front();
  }
  cause.group = id_;
  cause.sequence = number;
  cause.operation = op_kind_name(call.kind);
  cause.revoked = true;
  return cause;
}

void WideComm::revoke(const Failure& cause) noexcept {
  Failure kept;
  kept.code = cause.code;
  call_out([&] { kept = cause; });  // without memory the code must do
  kept.revoked = true;
  {
    MutexLock lock(mutex_);
    if (revoked_.load()) return;
    cause_ = std::move(kept);
    revoked_.store(true);
  }
  Failure here;
  here.code = cause.code;
  call_out([&] {
    here.operation = kOfGroup;
    for (const int32_t rank : cause.ranks)
      if (here.operation.size() < kMostRankText)
        here.operation += (here.operation.size() > kOfGroup.size() ? " " : "") + std::to_string(rank);
    here.text = cause.text;
  });
  local_->revoke(here);
  ErrorPlace place = place_of(cause);
  place.revoked = true;  // its ranks are those of the group
  if (wire_) wire_->abort(Error(cause.code, cause.text.c_str(), place));
  MutexLock lock(mutex_);
  for (const auto& [ends, link] : links_) link->abort();
  for (const auto& known : channels_)
    if (const auto channel = known.lock()) channel->revoke(cause);
}

void WideComm::abort() noexcept {
  Failure cause;
  cause.code = DSC_ERR_REVOKED;
  cause.rank = rank();
  cause.group = id_;
  call_out([&] {
    cause.ranks = {rank()};
    cause.operation = "abort";
    cause.text = "rank " + std::to_string(rank()) + " aborted the communicator";
  });
  told_.store(true);
  revoke(cause);
}

std::vector<WideLane*> WideComm::lanes() {
  std::vector<WideLane*> all{&collectives_};
  MutexLock lock(lanes_mutex_);
  for (auto* side : {&send_lanes_, &recv_lanes_})
    for (auto& [peer, lane] : *side) all.push_back(&lane);
  return all;
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
  if (id_ == kWorldId) world_->job->begin_closing();
  Call barrier;
  barrier.kind = OpKind::kFinalize;
  run(barrier);
  local_->finalize();
  finalized_.store(true);
}

void WideComm::end_world() noexcept {
  world_->ended.store(true);
  local_->end_world();
}

Failure WideComm::failure() const {
  if (revoked_.load()) {
    MutexLock lock(mutex_);
    return cause_;
  }
  Failure report = local_->failure();
  if (report.code == DSC_OK) return report;
  report = in_group(std::move(report));
  report.group = id_;
  return report;
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
