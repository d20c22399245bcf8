#include "control/consensus.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/fixed_text.hpp"

namespace dsc {
namespace {

constexpr uint64_t kProposerBits = 16;
// If one member knows of a failure, all members know of it after this time.
constexpr int64_t kFailureKnownNs = kNsPerSecond;
// Limits the attempts to read the decision, because a corrupted peer could change it endlessly.
constexpr int kReads = 1000;

// A proposal in shared memory. It is followed by two sets of members: the lost members, and the members that
// caused the outcome.
struct Proposal {
  int32_t outcome;
  int32_t flags;
  int64_t elapsed_ns;
  char text[240];
};

static_assert(sizeof(Ballot) == kBallotBytes && sizeof(Proposal) == kProposalBytes);

uint64_t sequence_of(uint64_t decision) noexcept { return decision >> kProposerBits; }
int proposer_of(uint64_t decision) noexcept {
  return static_cast<int>(decision & ((uint64_t{1} << kProposerBits) - 1));
}

const char* question_name(Question question) noexcept {
  switch (question) {
    case Question::kAgree:
      return "agree";
    case Question::kShrink:
      return "shrink";
    case Question::kMapped:
      return "the second phase of shrink";
  }
  return "an unknown operation";
}

}  // namespace

void Consensus::cast(const Ballot& mine, uint64_t sequence) noexcept {
  group_.ballot(group_.rank(), sequence).write(sequence, &mine);
  group_.notify_all_members();
}

bool Consensus::decided(uint64_t sequence) const noexcept {
  return sequence_of(group_.decision().load(std::memory_order_seq_cst)) >= sequence;
}

bool Consensus::complete(uint64_t sequence) const noexcept {
  for (int member = 0; member < group_.size(); ++member)
    if (!lost_.contains(member) && !group_.ballot(member, sequence).shows(sequence) &&
        group_.loss_of(member) == DSC_OK)
      return false;
  return true;
}

bool Consensus::is_hopeless() const noexcept {
  const uint64_t next = sequence_ + 1;
  if (decided(next)) return true;
  for (int member = 0; member < group_.size(); ++member) {
    if (lost_.contains(member)) continue;
    Ballot ballot;
    if (group_.loss_of(member) != DSC_OK) return true;
    if (group_.ballot(member, next).read(next, &ballot) && (ballot.flags == 0 || ballot.code != DSC_OK))
      return true;
  }
  return false;
}

// Returns the decision that follows from the ballots, or nullopt while a ballot of a living member is
// missing. A member that published its ballot and was lost afterwards is counted, and also marked as lost.
std::optional<Decision> Consensus::count(uint64_t sequence) const {
  Decision decision(group_.size());
  decision.sequence = sequence;
  decision.lost = lost_;
  std::vector<Ballot> ballots(static_cast<size_t>(group_.size()));
  for (int member = 0; member < group_.size(); ++member) {
    if (lost_.contains(member)) continue;
    Ballot& ballot = ballots[static_cast<size_t>(member)];
    const bool came = group_.ballot(member, sequence).read(sequence, &ballot);
    if (group_.loss_of(member) != DSC_OK)
      decision.lost.insert(member);
    else if (!came)
      return std::nullopt;
    if (!came) continue;
    decision.flags &= ballot.flags;
    if (ballot.code == DSC_OK || decision.outcome != DSC_OK) continue;
    decision.outcome = ballot.code;
    decision.named.insert(member);
    decision.text = "rank " + std::to_string(member) + ": " + bounded_text(ballot.text);
  }
  compare_questions(decision, ballots);
  return decision;
}

// If members were asked different questions, turns the decision into MISMATCH. It names the members whose
// question differs from that of the first member.
void Consensus::compare_questions(Decision& decision, const std::vector<Ballot>& ballots) const {
  const auto question = [&](int member) { return ballots[static_cast<size_t>(member)].question; };
  int first = 0;
  while (first < group_.size() && decision.lost.contains(first)) ++first;
  for (int member = first + 1; member < group_.size(); ++member) {
    if (decision.lost.contains(member) || question(member) == question(first)) continue;
    if (decision.outcome != DSC_ERR_MISMATCH) decision.named = MemberSet(group_.size());
    decision.outcome = DSC_ERR_MISMATCH;
    decision.named.insert(member);
    decision.text = "ranks called different operations: rank " + std::to_string(first) + ": " +
                    question_name(question(first)) + "; rank " + std::to_string(member) + ": " +
                    question_name(question(member));
  }
}

// Makes a decision without waiting any longer. TIMEOUT names the members without a ballot; REVOKED names this
// rank.
Decision Consensus::give_up(uint64_t sequence, dsc_result_t outcome) const {
  Decision decision(group_.size());
  decision.sequence = sequence;
  decision.outcome = outcome;
  decision.lost = lost_;
  for (int member = 0; member < group_.size(); ++member) {
    if (lost_.contains(member)) continue;
    if (group_.loss_of(member) != DSC_OK)
      decision.lost.insert(member);
    else if (outcome == DSC_ERR_REVOKED ? member == group_.rank()
                                        : !group_.ballot(member, sequence).shows(sequence))
      decision.named.insert(member);
  }
  return decision;
}

// Finds members that have begun a collective which this rank has not called. Such members cannot answer,
// because they wait for this rank. Only a failure of the group would free them. This function therefore first
// waits until such a failure would be known everywhere.
std::optional<Decision> Consensus::find_elsewhere(uint64_t sequence, const Ballot& mine,
                                                  const Asked& asked) const {
  if (group_.revoked() || now_ns() - asked.start_ns < kFailureKnownNs) return std::nullopt;
  Decision decision(group_.size());
  decision.sequence = sequence;
  decision.outcome = DSC_ERR_MISMATCH;
  decision.lost = lost_;
  int first = kNoRank;
  for (int member = 0; member < group_.size(); ++member) {
    if (lost_.contains(member)) continue;
    if (group_.loss_of(member) != DSC_OK) return std::nullopt;
    if (group_.ballot(member, sequence).shows(sequence)) continue;
    if (group_.latest_collective(member) <= asked.latest_collective) return std::nullopt;
    decision.named.insert(member);
    if (first == kNoRank) first = member;
  }
  if (first == kNoRank) return std::nullopt;
  decision.text = "ranks called different operations: rank " + std::to_string(group_.rank()) + ": " +
                  question_name(mine.question) + "; rank " + std::to_string(first) + ": " +
                  group_.describe_latest(first);
  return decision;
}

// Writes the proposal, and then tries to make it the decision by compare-and-swap. Has no effect if another
// member was faster.
void Consensus::propose(const Decision& decision) {
  const size_t set_bytes = MemberSet::words_for(group_.size()) * sizeof(uint64_t);
  Proposal head{};
  head.outcome = decision.outcome;
  head.flags = decision.flags;
  head.elapsed_ns = decision.elapsed_ns;
  std::snprintf(head.text, sizeof head.text, "%s", decision.text.c_str());
  std::vector<std::byte> payload(sizeof head + 2 * set_bytes);
  std::memcpy(payload.data(), &head, sizeof head);
  std::memcpy(payload.data() + sizeof head, decision.lost.words(), set_bytes);
  std::memcpy(payload.data() + sizeof head + set_bytes, decision.named.words(), set_bytes);
  group_.proposal(group_.rank(), decision.sequence).write(decision.sequence, payload.data());
  std::atomic<uint64_t>& word = group_.decision();
  const uint64_t mine = decision.sequence << kProposerBits | static_cast<uint64_t>(group_.rank());
  uint64_t seen = word.load(std::memory_order_seq_cst);
  while (sequence_of(seen) < decision.sequence)
    if (word.compare_exchange_weak(seen, mine, std::memory_order_seq_cst)) return group_.notify_all_members();
}

// Returns the latest decision. Reads it again if a newer decision replaces the proposal during the reading.
// Checks all values, because another process wrote them.
Decision Consensus::read_decision() const {
  const size_t set_bytes = MemberSet::words_for(group_.size()) * sizeof(uint64_t);
  std::vector<std::byte> payload(sizeof(Proposal) + 2 * set_bytes);
  for (int i = 0; i < kReads; ++i) {
    const uint64_t seen = group_.decision().load(std::memory_order_seq_cst);
    const int proposer = proposer_of(seen);
    if (proposer >= group_.size()) break;
    if (!group_.proposal(proposer, sequence_of(seen)).read(sequence_of(seen), payload.data())) continue;
    Proposal head;
    std::memcpy(&head, payload.data(), sizeof head);
    if (head.outcome > DSC_OK) break;
    Decision decision(group_.size());
    decision.sequence = sequence_of(seen);
    decision.outcome = head.outcome;
    decision.flags = head.flags;
    decision.elapsed_ns = head.elapsed_ns;
    decision.text = bounded_text(head.text);
    std::memcpy(decision.lost.words(), payload.data() + sizeof head, set_bytes);
    std::memcpy(decision.named.words(), payload.data() + sizeof head + set_bytes, set_bytes);
    return decision;
  }
  fail(DSC_ERR_PROTOCOL, "the decision of the group does not come from one of its ranks");
}

void Consensus::check_membership() const {
  if (group_.has_left(group_.rank())) fail(DSC_ERR_STATE, "the communicator was destroyed during the call");
  if (lost_.contains(group_.rank()))
    fail(DSC_ERR_PEER_STALLED,
         "the other ranks have continued without this rank, %s, because it was stopped for too long",
         group_.describe_member(group_.rank()).c_str());
}

// If the decision belongs to a later question than the one asked, this rank only learns from it which members
// are lost.
Decision Consensus::adopt(Decision decision, uint64_t sequence) {
  sequence_ = decision.sequence;
  lost_ = decision.lost;
  check_membership();
  if (decision.sequence == sequence) return decision;
  Decision late(group_.size());
  late.sequence = sequence;
  late.outcome = DSC_ERR_TIMEOUT;
  late.lost = lost_;
  late.named.insert(group_.rank());
  late.text =
      group_.describe_member(group_.rank()).str() + " arrived too late: the other ranks have continued";
  return late;
}

void Consensus::catch_up() {
  if (decided(sequence_ + 1)) adopt(read_decision(), 0);
  check_membership();
}

Decision Consensus::reach(const Ballot& mine, const Asked& asked, Deadline deadline,
                          const std::function<bool()>& interrupted, const Besides& besides) {
  const uint64_t sequence = sequence_ + 1;
  const auto propose_timed = [&](Decision decision) {
    decision.elapsed_ns = now_ns() - asked.start_ns;
    propose(decision);
  };
  cast(mine, sequence);
  Backoff backoff(group_.host().process().notifier(), group_.host().spins());
  const auto moved = [&] {
    return decided(sequence) || complete(sequence) || interrupted() || besides.drive();
  };
  while (!decided(sequence)) {
    if (complete(sequence)) {
      if (auto decision = count(sequence)) propose_timed(std::move(*decision));
    } else if (interrupted()) {
      propose_timed(give_up(sequence, DSC_ERR_REVOKED));
    } else if (deadline.passed()) {
      if (auto decision = give_up(sequence, DSC_ERR_TIMEOUT); !decision.named.empty())
        // If no member is named, the last missing ballot has just arrived, so no TIMEOUT is proposed.
        propose_timed(std::move(decision));
    } else if (besides.drive()) {
      backoff.reset();
    } else if (backoff.pause(moved, deadline.remaining_ns())) {
      besides.look_at_clock();
      if (auto decision = find_elsewhere(sequence, mine, asked)) propose_timed(std::move(*decision));
    }
  }
  return adopt(read_decision(), sequence);
}

}  // namespace dsc
