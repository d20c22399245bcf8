// Reaches one decision among all living members of a group, even if some of them die during the vote.
//
// Every member publishes its ballot. A member that has seen the ballots of all living members writes the
// resulting decision as its proposal and tries to install it by compare-and-swap. The first proposal to be
// installed is the decision, and all members adopt it. Ballots, proposals and the decision are in memory that
// outlives the processes that wrote them, so the decision of a rank survives the death of that rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "control/group.hpp"
#include "control/member_set.hpp"

namespace dsc {

// The question that the members answer. All members must be asked the same question.
enum class Question : int32_t { kAgree = 1, kShrink = 2, kMapped = 3 };

// A member's answer to a question, in shared memory.
struct Ballot {
  Question question;
  int32_t flags;
  int32_t code;  // DSC_OK, or why the member's own part failed
  int32_t unused;
  char text[240];  // explains `code`
};

// A decision, which is the same on all members.
struct Decision {
  explicit Decision(int size) : lost(size), named(size) {}

  uint64_t sequence = 0;
  dsc_result_t outcome = DSC_OK;
  int32_t flags = -1;      // bitwise AND of the flags of all ballots
  int64_t elapsed_ns = 0;  // time since the call began, measured by the member that proposed the decision
  MemberSet lost;    // members that are dead, stopped or have left; they take no part in later questions
  MemberSet named;   // members that caused the outcome
  std::string text;  // explains the outcome; empty if the code and the members explain it completely
};

// Work that a thread does while it waits for a decision. It is needed because this thread may be the only one
// that runs queued operations.
struct Besides {
  std::function<bool()> drive;  // executes one step; returns true if there was progress
  std::function<void()> look_at_clock;
};

// The time at which the call began, and the sequence number of the last collective that this rank had called
// before.
struct Asked {
  int64_t start_ns;
  uint64_t latest_collective;
};

// Takes part in the decisions of one group. Only the thread that is inside a call of the communicator may use
// it.
class Consensus {
 public:
  explicit Consensus(Group& group) : group_(group), lost_(group.size()) {}

  // Called before a new question. Skips decisions that the other members made without this rank. Throws
  // PEER_STALLED if they have excluded this rank.
  void catch_up();

  // Blocks until there is a decision. The decision is TIMEOUT at the deadline, REVOKED once `interrupted`
  // returns true, and MISMATCH if all missing members wait for this rank in another operation. Throws
  // PROTOCOL, and what catch_up() throws.
  Decision reach(const Ballot& mine, const Asked& asked, Deadline deadline,
                 const std::function<bool()>& interrupted, const Besides& besides);

  // Returns whether the next question can no longer succeed: a member is lost or has reported a failure, or
  // the decision has already been made.
  bool is_hopeless() const noexcept;

 private:
  void cast(const Ballot& mine, uint64_t sequence) noexcept;
  bool decided(uint64_t sequence) const noexcept;
  bool complete(uint64_t sequence) const noexcept;
  std::optional<Decision> count(uint64_t sequence) const;
  void compare_questions(Decision& decision, const std::vector<Ballot>& ballots) const;
  Decision give_up(uint64_t sequence, dsc_result_t outcome) const;
  std::optional<Decision> find_elsewhere(uint64_t sequence, const Ballot& mine, const Asked& asked) const;
  void propose(const Decision& decision);
  Decision read_decision() const;
  void check_membership() const;
  Decision adopt(Decision decision, uint64_t sequence);

  Group& group_;
  uint64_t sequence_ = 0;  // sequence number of the last decision that this rank knows
  MemberSet lost_;
};

}  // namespace dsc
