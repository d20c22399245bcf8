// How the remaining ranks decide together, even after a failure.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/failure.hpp"

namespace conformance {

class Engine;
class SharedGroup;
struct Participant;

// Returns "rank 1 (pid 4711)" or "ranks 1, 2".
std::string describe_ranks(const std::vector<int32_t>& ranks);

enum class Question : uint8_t { kAgree, kShrink };

const char* name_of(Question question) noexcept;

struct Ballot {
  Question question;
  int32_t flags;  // passed to agree
  int shrinks;    // how often this family of communicators was shrunk, as known to this rank
};

struct Decision {
  dsc::Failure failure;               // the first failure of all ranks that have voted
  int32_t flags = -1;                 // the bitwise AND of all votes
  int shrinks = 0;                    // the maximum of all votes
  std::vector<int32_t> missing;       // ranks that did not take part
  std::shared_ptr<SharedGroup> rest;  // for shrink: the group of the ranks that took part
};

// One decision. Guarded by the lock of the world.
class RecoveryRound {
 public:
  explicit RecoveryRound(SharedGroup& group) : group_(group) {}

  void vote(Engine& engine, const Ballot& ballot);
  bool has_voted(int rank) const { return votes_.contains(rank); }
  // Decides if no rank is missing, or if a missing rank cannot arrive any more.
  void try_to_decide();
  void give_up_on_the_missing();
  void abort(Engine& by);
  const std::optional<Decision>& decision() const noexcept { return decision_; }

 private:
  std::vector<int32_t> missing() const;
  void conclude();
  void fail(dsc_result_t code, const std::vector<int32_t>& ranks, const std::string& text);
  bool fail_if_questions_differ();
  void fail_if_all_missing_are_elsewhere();
  const Participant* stuck_call_of(int rank) const;

  SharedGroup& group_;
  const int64_t start_ns_ = dsc::now_ns();
  std::map<int, Ballot> votes_;
  std::optional<Decision> decision_;
};

}  // namespace conformance
