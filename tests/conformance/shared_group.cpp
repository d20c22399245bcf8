#include "shared_group.hpp"

#include <algorithm>
#include <string>

#include "base/fixed_text.hpp"
#include "comm/describe.hpp"
#include "engine.hpp"

namespace conformance {
namespace {

constexpr int kMeetingOfAll = -1;

// A failure of one rank has its own code on that rank only. The other ranks learn that the group has failed.
dsc::Failure as_seen_by(int rank, const dsc::Failure& cause) {
  dsc::Failure own = cause;
  const bool is_cause = std::ranges::find(cause.ranks, rank) != cause.ranks.end();
  if (!dsc::is_group_fatal(cause.code) && !is_cause) own.code = DSC_ERR_REVOKED;
  return own;
}

dsc::Failure failure_of_ranks(dsc_result_t code, const std::vector<int32_t>& ranks, const std::string& text) {
  dsc::Failure failure;
  failure.code = code;
  failure.ranks = ranks;
  failure.text = text;
  return failure;
}

}  // namespace

bool MeetingWork::test() {
  const std::lock_guard lock(world_->mutex);
  world_->expire();
  return done();
}

void MeetingWork::await_end(dsc::Deadline deadline) {
  std::unique_lock lock(world_->mutex);
  while (!done() && !deadline.passed()) world_->wait(lock, deadline);
}

SharedGroup::SharedGroup(std::shared_ptr<SharedWorld> world_in, uint64_t id_in, int size_in)
    : world(std::move(world_in)), id(id_in), size(size_in) {
  world->add(*this);
}

SharedGroup::~SharedGroup() {
  const std::lock_guard lock(world->mutex);
  world->remove(*this);
}

// ---- meeting

Lane& SharedGroup::lane_of(int rank, const dsc::Call& call) {
  const bool sends = call.kind == dsc::OpKind::kSend;
  LaneKey key{kMeetingOfAll, kMeetingOfAll};
  if (dsc::is_message(call.kind)) key = sends ? LaneKey{rank, call.root} : LaneKey{call.root, rank};
  Lane& lane = lanes_[key];
  if (!lane.ranks.empty()) return lane;
  if (key.first != kMeetingOfAll) lane.ranks = {key.first, key.second};
  for (int member = 0; key.first == kMeetingOfAll && member < size; ++member) lane.ranks.push_back(member);
  return lane;
}

std::optional<dsc::Failure> SharedGroup::refusal(Engine& engine) const {
  const bool has_failed = failure_.code != DSC_OK;
  if (engine.state.has_left_or_finalizes() || (has_failed && engine.state.reported()))
    return engine.state.refusal(failure_);
  if (!has_failed) return std::nullopt;
  engine.state.note_reported();
  return as_seen_by(engine.rank(), failure_);
}

std::shared_ptr<MeetingWork> SharedGroup::arrive(Engine& engine, const dsc::Call& call, bool blocks) {
  std::unique_lock lock(world->mutex);
  auto work = std::make_shared<MeetingWork>(call, id, engine.next_sequence(call), world);
  if (auto refused = refusal(engine)) {
    engine.state.name_operation(*refused, op_kind_name(call.kind), work->sequence());
    work->finish(refused);
    return work;
  }
  Lane& lane = lane_of(engine.rank(), call);
  enter(lane, engine, work, blocks);
  drive(lane, lock);
  fail_because_of_the_left();
  if (round_) round_->try_to_decide();
  return work;
}

void SharedGroup::enter(Lane& lane, Engine& engine, std::shared_ptr<MeetingWork> work, bool blocks) {
  const size_t place = lane.called[engine.rank()]++ - lane.done;
  if (place == lane.meetings.size()) lane.meetings.emplace_back();
  const uint64_t sequence = work->sequence();
  lane.meetings[place].emplace(engine.rank(),
                               Participant{&engine, std::move(work), sequence, blocks, dsc::tick_now()});
  world->begin(engine.load());
  if (place == 0) begin_first(lane);
}

void SharedGroup::begin_first(Lane& lane) {
  for (auto& [rank, participant] : lane.meetings.front()) {
    if (participant.limit.ns != dsc::Deadline::never().ns) continue;
    participant.limit =
        dsc::Deadline::after_ms(participant.engine->state.timeout_ms(participant.work->call()));
    world->look_at(participant.limit);
  }
}

// Only one thread moves the data of a lane, so that operations end in the order of their calls.
void SharedGroup::drive(Lane& lane, std::unique_lock<std::mutex>& lock) {
  while (!lane.moves && !lane.meetings.empty() && missing_from(lane).empty()) {
    std::vector<RankCall> calls;
    for (const auto& [rank, participant] : lane.meetings.front())
      calls.push_back({rank, &participant.work->call(), participant.sequence});
    const int64_t met_ticks = dsc::tick_now();
    lane.moves = true;
    lock.unlock();
    const Outcome outcome = exchange(id, calls.front().rank, calls);
    lock.lock();
    lane.moves = false;
    end_first(lane, outcome, met_ticks);
    if (!lane.meetings.empty()) begin_first(lane);
  }
}

void SharedGroup::end_first(Lane& lane, const Outcome& outcome, int64_t met_ticks) {
  Meeting meeting = std::move(lane.meetings.front());
  lane.meetings.pop_front();
  ++lane.done;
  std::optional<dsc::Failure> failure = outcome.failure;
  const bool fails_group = failure && failure->code != DSC_ERR_NONFINITE;
  const int64_t end_ticks = dsc::tick_now();
  for (auto& [rank, participant] : meeting) {
    const dsc::Call& call = participant.work->call();
    if (failure) {
      failure->revoked = fails_group;
      failure->operation = op_kind_name(call.kind);
      failure->sequence = participant.sequence;
    }
    if (outcome.found.count > 0)
      participant.engine->state.nonfinite->add(call.kind, participant.sequence, outcome.found);
    if (!failure)
      participant.engine->stats.add(call.kind, bytes_of(call, rank, size),
                                    dsc::ticks_to_ns(met_ticks - participant.came_ticks),
                                    dsc::ticks_to_ns(end_ticks - met_ticks));
    std::optional<dsc::Failure> own = failure;
    if (fails_group) own = as_seen_by(rank, *failure);
    end(rank, participant, own);
  }
  if (fails_group) fail(*failure);
}

void SharedGroup::end(int rank, Participant& participant, std::optional<dsc::Failure> failure) {
  Engine& engine = *participant.engine;
  if (failure) {
    failure->elapsed_ns = dsc::ticks_to_ns(dsc::tick_now() - participant.came_ticks);
    if (failure->code != DSC_ERR_NONFINITE) engine.state.note_reported();
    const auto kind = participant.work->call().kind;
    engine.state.name_operation(*failure, op_kind_name(kind), participant.sequence);
    dsc::say_if_late(*failure, rank, kind, participant.sequence);
  }
  world->end(engine.load());
  participant.work->finish(failure);
  world->notify();
}

// ---- failure and end

// Data that is already being moved still arrives.
void SharedGroup::fail(dsc::Failure cause) {
  if (failure_.code == DSC_OK) {
    failure_ = cause;
    failure_.group = id;
    failure_.revoked = true;
  }
  for (auto& [key, lane] : lanes_) {
    while (lane.meetings.size() > (lane.moves ? 1 : 0)) {
      for (auto& [rank, participant] : lane.meetings.back())
        end(rank, participant, as_seen_by(rank, failure_));
      lane.meetings.pop_back();
    }
  }
  world->notify();
}

void SharedGroup::revoke(Engine& by, const dsc::Failure& cause) {
  const std::lock_guard lock(world->mutex);
  fail(cause);
  if (round_) round_->abort(by);
}

dsc::Failure SharedGroup::failure() const {
  const std::lock_guard lock(world->mutex);
  return failure_;
}

void SharedGroup::fail_because_of_the_left() {
  for (const auto& [rank, finalizes] : left_)
    for (const auto& [key, lane] : lanes_)
      for (size_t place = lane.moves ? 1 : 0; place < lane.meetings.size(); ++place) {
        const bool has_to_come = std::ranges::find(lane.ranks, rank) != lane.ranks.end();
        if (!has_to_come || lane.meetings[place].contains(rank)) continue;
        const char* const how =
            finalizes ? " finalizes the world and takes part in no more operations" : " has left the group";
        return fail(failure_of_ranks(DSC_ERR_PEER_LEFT, {rank}, describe_ranks({rank}) + how));
      }
}

void SharedGroup::leave(Engine& engine, bool finalizes) {
  const int rank = engine.rank();
  std::unique_lock lock(world->mutex);
  if (finalizes && runs_for(rank, false)) return;
  while (moves_for(rank)) world->wait(lock, dsc::Deadline::never());
  if (runs_for(rank, false)) fail(engine.state.destroyed());
  left_.insert_or_assign(rank, finalizes);
  fail_because_of_the_left();
  if (round_) round_->try_to_decide();
  world->notify();
}

bool SharedGroup::moves_for(int rank) const {
  return std::ranges::any_of(lanes_, [rank](const auto& of) {
    return of.second.moves && of.second.meetings.front().contains(rank);
  });
}

bool SharedGroup::runs_for(int rank, bool only_messages) const {
  for (const auto& [key, lane] : lanes_) {
    if (only_messages && key.first == kMeetingOfAll) continue;
    for (const Meeting& meeting : lane.meetings)
      if (meeting.contains(rank)) return true;
  }
  return false;
}

bool SharedGroup::has_running(int rank) {
  const std::lock_guard lock(world->mutex);
  return runs_for(rank, false);
}

void SharedGroup::drain_messages(int rank) {
  std::unique_lock lock(world->mutex);
  while (runs_for(rank, true)) world->wait(lock, dsc::Deadline::never());
}

// ---- deadlines

std::vector<int32_t> SharedGroup::missing_from(const Lane& lane) const {
  std::vector<int32_t> missing;
  for (const int rank : lane.ranks)
    if (!lane.meetings.front().contains(rank)) missing.push_back(rank);
  return missing;
}

dsc::Deadline SharedGroup::expire() {
  dsc::Deadline next = dsc::Deadline::never();
  for (auto& [key, lane] : lanes_) {
    if (lane.moves || lane.meetings.empty()) continue;
    for (const auto& [rank, participant] : lane.meetings.front()) {
      next = sooner(next, participant.limit);
      if (!participant.limit.passed()) continue;
      const std::vector<int32_t> missing = missing_from(lane);
      dsc::FixedText<64> how;
      how.add(" did not arrive within %.1f s",
              participant.engine->state.timeout_ms(participant.work->call()) / 1e3);
      dsc::Failure failure =
          failure_of_ranks(DSC_ERR_TIMEOUT, missing, describe_ranks(missing) + how.c_str());
      failure.operation = op_kind_name(participant.work->call().kind);
      failure.sequence = participant.sequence;
      fail(failure);
      return dsc::Deadline::never();
    }
  }
  return next;
}

// ---- recovery

Decision SharedGroup::decide(Engine& engine, const Ballot& ballot) {
  std::shared_ptr<RecoveryRound> former;  // destroyed after the lock is released
  const dsc::Deadline limit = dsc::Deadline::after_ms(engine.timeout_ms());
  std::unique_lock lock(world->mutex);
  if (!round_ || round_->decision()) {
    former = std::exchange(round_, nullptr);
    round_ = std::make_shared<RecoveryRound>(*this);
  }
  const auto round = round_;
  round->vote(engine, ballot);
  for (round->try_to_decide(); !round->decision(); round->try_to_decide()) {
    if (limit.passed())
      round->give_up_on_the_missing();
    else
      world->wait(lock, limit);
  }
  world->notify();
  return *round->decision();
}

}  // namespace conformance
