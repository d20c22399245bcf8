// One answer for all members of a group that still live, whenever any of them dies.
//
// Every member shows its ballot. Who has seen the ballots of all that live writes down what follows from them
// as its proposal, and tries to make that the decision by compare-and-swap. The first one wins; all others
// read the winner's proposal and forget their own. Ballots, proposals and the decision lie in memory that
// outlives its writers, so a rank that decides and dies leaves the decision behind.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "control/group.hpp"
#include "control/member_set.hpp"

namespace dsc {

// What the members are asked; they must all be asked the same.
enum class Question : int32_t { kAgree = 1, kShrink = 2, kMapped = 3 };

struct Ballot {
  Question question;
  int32_t flags;
  int32_t code;  // DSC_OK, or why this member's part failed
  int32_t unused;
  char text[240];  // to the code
};

// The decision, equal on all members.
struct Decision {
  explicit Decision(int size) : lost(size), named(size) {}

  uint64_t number = 0;
  dsc_result_t outcome = DSC_OK;
  int32_t flags = -1;      // bitwise AND of all ballots
  int64_t elapsed_ns = 0;  // on the rank that proposed it
  MemberSet lost;          // dead, left or stopped: these take no part any more, now and later
  MemberSet named;         // who is to blame for the outcome
  std::string text;        // to the outcome; empty where code and members say it all
};

// What a thread that waits for a decision does besides: it may be the only one that moves queued operations.
struct Besides {
  std::function<bool()> drive;  // one step; true when something moved
  std::function<void()> look_at_clock;
};

// When a call began that asks the others, and the last collective operation that this rank called before.
struct Asked {
  int64_t start_ns;
  uint64_t latest_collective;
};

// Only the thread that is in a call of the communicator uses it.
class Consensus {
 public:
  explicit Consensus(Group& group) : group_(group), lost_(group.size()) {}

  // Before a question that starts afresh: what the others decided without this rank is over. Throws
  // PEER_STALLED if they have given this rank up.
  void catch_up();

  // Blocks until there is a decision: at the deadline that is TIMEOUT, once `interrupted` is true REVOKED.
  // When all that are missing wait for this rank in another operation it is MISMATCH.
  // Throws as catch_up(), and PROTOCOL.
  Decision reach(const Ballot& mine, const Asked& asked, Deadline deadline,
                 const std::function<bool()>& interrupted, const Besides& besides);

  // Whether working towards the next question is in vain: a member is lost, has brought a failure, or the
  // decision is there.
  bool is_hopeless() const noexcept;

 private:
  void cast(const Ballot& mine, uint64_t number) noexcept;
  bool decided(uint64_t number) const noexcept;
  bool complete(uint64_t number) const noexcept;
  std::optional<Decision> count(uint64_t number) const;
  void compare_questions(Decision& decision, const std::vector<Ballot>& ballots) const;
  Decision give_up(uint64_t number, dsc_result_t outcome) const;
  std::optional<Decision> find_elsewhere(uint64_t number, const Ballot& mine, const Asked& asked) const;
  void propose(const Decision& decision);
  Decision read_decision() const;
  void check_membership() const;
  Decision settle(Decision decision, uint64_t number);

  Group& group_;
  uint64_t number_ = 0;  // of the last decision that this rank knows
  MemberSet lost_;
};

}  // namespace dsc
