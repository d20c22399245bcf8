// The state that the ranks of one group share in the conformance engine. An operation runs when its last rank
// has called it, on the thread of that rank.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/engine.hpp"
#include "comm/operation_work.hpp"
#include "exchange.hpp"
#include "recovery.hpp"
#include "shared_world.hpp"

namespace conformance {

class Engine;

class MeetingWork final : public dsc::OperationWork {
 public:
  MeetingWork(const dsc::Call& call, uint64_t group, uint64_t sequence, std::shared_ptr<SharedWorld> world)
      : OperationWork(call, group), sequence_(sequence), world_(std::move(world)) {}
  uint64_t sequence() const noexcept override { return sequence_; }
  bool test() override;
  void finish(const std::optional<dsc::Failure>& failure) noexcept { end(failure); }

 private:
  void await_end(dsc::Deadline deadline) override;

  const uint64_t sequence_;
  const std::shared_ptr<SharedWorld> world_;
};

// The call of one rank. The engine exists until the work has ended, because leave() ends it.
struct Participant {
  Engine* engine;
  std::shared_ptr<MeetingWork> work;
  uint64_t sequence;
  bool blocks;  // the rank waits inside the call
  int64_t came_ticks;
  dsc::Deadline limit = dsc::Deadline::never();  // starts when the meeting is the first of its lane
};

using Meeting = std::map<int, Participant>;  // the ranks that have arrived

// Operations that run one after another: the collectives, or the messages from one rank to another.
struct Lane {
  std::deque<Meeting> meetings;
  uint64_t done = 0;               // the number of earlier meetings
  std::map<int, uint64_t> called;  // the number of calls by rank
  std::vector<int> ranks;          // the ranks that must arrive
  bool moves = false;              // the first meeting is complete, and a thread moves its data
};

class SharedGroup {
 public:
  // Must be called with the lock of the world held.
  SharedGroup(std::shared_ptr<SharedWorld> world, uint64_t id, int size);
  ~SharedGroup();
  SharedGroup(const SharedGroup&) = delete;
  SharedGroup& operator=(const SharedGroup&) = delete;

  // Returns the work of a call. The work has ended if this rank was the last one.
  std::shared_ptr<MeetingWork> arrive(Engine& engine, const dsc::Call& call, bool blocks);
  void revoke(Engine& by, const dsc::Failure& cause);
  // Afterwards nothing of this rank runs, and no other rank waits for it.
  void leave(Engine& engine, bool finalizes);
  bool has_running(int rank);
  // Waits until the messages of this rank have ended.
  void drain_messages(int rank);
  dsc::Failure failure() const;

  // Collective among the ranks that have not left, even after a failure. Throws the same failure on all of
  // them.
  Decision decide(Engine& engine, const Ballot& ballot);

  // With the lock held: ends operations that are too late, and returns when to look again.
  dsc::Deadline expire();

  const std::shared_ptr<SharedWorld> world;
  const uint64_t id;
  const int size;

 private:
  using LaneKey = std::pair<int, int>;  // sender and receiver; -1, -1 for collectives
  friend class RecoveryRound;

  Lane& lane_of(int rank, const dsc::Call& call);
  std::optional<dsc::Failure> refusal(Engine& engine) const;
  void enter(Lane& lane, Engine& engine, std::shared_ptr<MeetingWork> work, bool blocks);
  void begin_first(Lane& lane);
  void drive(Lane& lane, std::unique_lock<std::mutex>& lock);
  void end_first(Lane& lane, const Outcome& outcome, int64_t met_ticks);
  void end(int rank, Participant& participant, std::optional<dsc::Failure> failure);
  void fail(dsc::Failure cause);
  void fail_because_of_the_left();
  bool moves_for(int rank) const;
  bool runs_for(int rank, bool only_messages) const;
  std::vector<int32_t> missing_from(const Lane& lane) const;

  std::map<LaneKey, Lane> lanes_;
  std::map<int, bool> left_;  // the rank, and whether it finalizes the world
  dsc::Failure failure_;
  std::shared_ptr<RecoveryRound> round_;  // the latest round
};

}  // namespace conformance
