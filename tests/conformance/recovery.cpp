#include "recovery.hpp"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/fixed_text.hpp"
#include "comm/describe.hpp"
#include "comm/group_ids.hpp"
#include "engine.hpp"

namespace conformance {
namespace {

constexpr uint64_t kShrunkIds = uint64_t{1} << 63;  // must differ from the numbers of other child groups
constexpr int64_t kPatienceNs = dsc::kNsPerSecond;

}  // namespace

std::string describe_ranks(const std::vector<int32_t>& ranks) {
  if (ranks.size() != 1) return dsc::list_ranks(ranks);
  return "rank " + std::to_string(ranks[0]) + " (pid " + std::to_string(::getpid()) + ")";
}

const char* name_of(Question question) noexcept { return question == Question::kAgree ? "agree" : "shrink"; }

void RecoveryRound::vote(Engine& engine, const Ballot& ballot) { votes_.emplace(engine.rank(), ballot); }

std::vector<int32_t> RecoveryRound::missing() const {
  std::vector<int32_t> missing;
  for (int rank = 0; rank < group_.size; ++rank)
    if (!votes_.contains(rank) && !group_.left_.contains(rank)) missing.push_back(rank);
  return missing;
}

void RecoveryRound::try_to_decide() {
  if (decision_ || votes_.empty()) return;
  if (!missing().empty()) {
    fail_if_all_missing_are_elsewhere();
    return;
  }
  if (!fail_if_questions_differ()) conclude();
}

void RecoveryRound::conclude() {
  Decision decision;
  for (const auto& [rank, ballot] : votes_) {
    decision.flags &= ballot.flags;
    decision.shrinks = std::max(decision.shrinks, ballot.shrinks);
  }
  for (const auto& [rank, finalizes] : group_.left_)
    if (!votes_.contains(rank)) decision.missing.push_back(rank);
  if (votes_.begin()->second.question == Question::kShrink) {
    const uint64_t id = dsc::mix_id(group_.id, kShrunkIds | static_cast<uint64_t>(decision.shrinks));
    decision.rest = std::make_shared<SharedGroup>(group_.world, id, static_cast<int>(votes_.size()));
  }
  decision_ = decision;
  if (decision.missing.empty()) return;
  dsc::Failure lost;  // ranks that did not take part can no longer use the group
  lost.code = DSC_ERR_PEER_LEFT;
  lost.ranks = decision.missing;
  lost.text = dsc::list_ranks(decision.missing) + " no longer takes part";
  group_.fail(lost);
}

void RecoveryRound::fail(dsc_result_t code, const std::vector<int32_t>& ranks, const std::string& text) {
  Decision decision;
  decision.missing = ranks;
  decision.failure.code = code;
  decision.failure.ranks = ranks;
  decision.failure.text = text;
  decision.failure.operation = name_of(votes_.begin()->second.question);
  decision.failure.elapsed_ns = dsc::now_ns() - start_ns_;
  decision.failure.revoked = true;
  decision_ = decision;
  group_.fail(decision.failure);
  group_.world->notify();
}

bool RecoveryRound::fail_if_questions_differ() {
  std::vector<int32_t> same, other;  // the ranks that ask the same as the lowest rank, and the others
  const Question first = votes_.begin()->second.question;
  for (const auto& [rank, ballot] : votes_) (ballot.question == first ? same : other).push_back(rank);
  if (other.empty()) return false;
  const Question second = votes_.at(other[0]).question;
  fail(DSC_ERR_MISMATCH, other.size() > same.size() ? same : other,
       "ranks called different operations: " + dsc::list_ranks(same) + ": " + name_of(first) + "; " +
           dsc::list_ranks(other) + ": " + name_of(second));
  return true;
}

// If all missing ranks wait inside operations that the voters have not called, voters and missing ranks wait
// for each other. Then the group fails. It waits for a while before that, because a failure may still end the
// operations.
void RecoveryRound::fail_if_all_missing_are_elsewhere() {
  if (dsc::now_ns() - start_ns_ < kPatienceNs) return;
  std::vector<int32_t> voters, elsewhere;
  for (const auto& [rank, ballot] : votes_) voters.push_back(rank);
  std::string text = "ranks called different operations: " + dsc::list_ranks(voters) + ": " +
                     name_of(votes_.begin()->second.question);
  for (const int32_t rank : missing()) {
    const Participant* const stuck = stuck_call_of(rank);
    if (!stuck) return;
    elsewhere.push_back(rank);
    text += "; " + dsc::list_ranks({&rank, 1}) + ": " +
            dsc::numbered(op_kind_name(stuck->work->call().kind), stuck->sequence).c_str();
  }
  fail(DSC_ERR_MISMATCH, elsewhere, text);
}

// Returns the call in which a rank waits for a rank that has voted, or null if there is none.
const Participant* RecoveryRound::stuck_call_of(int rank) const {
  for (const auto& [key, lane] : group_.lanes_)
    for (const Meeting& meeting : lane.meetings) {
      const auto own = meeting.find(rank);
      if (own == meeting.end() || !own->second.blocks) continue;
      for (const int other : lane.ranks)
        if (votes_.contains(other) && !meeting.contains(other)) return &own->second;
    }
  return nullptr;
}

void RecoveryRound::give_up_on_the_missing() {
  if (decision_) return;
  const std::vector<int32_t> late = missing();
  dsc::FixedText<64> how;
  how.add(" did not arrive within %.1f s",
          static_cast<double>(dsc::now_ns() - start_ns_) / static_cast<double>(dsc::kNsPerSecond));
  fail(DSC_ERR_TIMEOUT, late, describe_ranks(late) + how.c_str());
}

void RecoveryRound::abort(Engine& by) {
  if (decision_ || !votes_.contains(by.rank())) return;
  fail(DSC_ERR_REVOKED, {by.rank()}, std::string(by.state.aborted().text.c_str()));
}

}  // namespace conformance
