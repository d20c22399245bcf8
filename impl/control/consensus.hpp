// Reaches one decision among all living members of a group, even if some die meanwhile.
//
// Every member publishes its ballot. A member that has seen the ballots of all living members writes the
// resulting decision as its proposal, and tries to install it by compare-and-swap. The first one wins; all
// others adopt the winner's proposal and drop their own. Ballots, proposals and the decision lie in memory
// that outlives their writers, so the decision of a rank survives its death.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "control/group.hpp"
#include "control/member_set.hpp"

namespace dsc {

// The question that the members answer; all must be asked the same one.
enum class Question : int32_t { kAgree = 1, kShrink = 2, kMapped = 3 };

// A member's answer to a question, in shared memory.
struct Ballot {
  Question question;
  int32_t flags;
  int32_t code;  // DSC_OK, or why this member's part failed
  int32_t unused;
  char text[240];  // explains the code
};

// A decision, which is equal on all members.
struct Decision {
  explicit Decision(int size) : lost(size), named(size) {}

  uint64_t sequence = 0;
  dsc_result_t outcome = DSC_OK;
  int32_t flags = -1;      // bitwise AND of the flags of all ballots
  int64_t elapsed_ns = 0;  // as measured by the rank that proposed it
  MemberSet lost;          // members that are dead, stopped or have left; they are excluded from now on
  MemberSet named;         // members that are to blame for the outcome
  std::string text;        // explains the outcome; empty if code and members say everything
};

// Work that a thread does while it waits for a decision: it may be the only thread that drives queued
// operations.
struct Besides {
  std::function<bool()> drive;  // executes one step; true if there was progress
  std::function<void()> look_at_clock;
};

// When a call that asks the others began, and the sequence number of the last collective that this rank had
// called.
struct Asked {
  int64_t start_ns;
  uint64_t latest_collective;
};

// Used only by the thread that is inside a call of the communicator.
class Consensus {
 public:
  explicit Consensus(Group& group) : group_(group), lost_(group.size()) {}

  // Called before a new question: skips decisions that the others made without this rank. Throws PEER_STALLED
  // if they have excluded this rank.
  void catch_up();

  // Blocks until there is a decision. It is TIMEOUT at the deadline, REVOKED once `interrupted` returns true,
  // and MISMATCH if all missing members wait for this rank in another operation. Throws what catch_up()
  // throws, and PROTOCOL.
  Decision reach(const Ballot& mine, const Asked& asked, Deadline deadline,
                 const std::function<bool()>& interrupted, const Besides& besides);

  // Returns whether preparing the next question is pointless: a member is lost or has reported a failure, or
  // the decision has been made.
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
  uint64_t sequence_ = 0;  // of the last decision that this rank knows
  MemberSet lost_;
};

}  // namespace dsc
