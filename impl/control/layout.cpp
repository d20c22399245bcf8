#include "control/layout.hpp"

#include "control/member_set.hpp"
#include "control/shared_record.hpp"

namespace dsc {
namespace {

constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Geometry::Geometry(int size, const Tuning& tuning)
    : stage_bytes(tuning.stage_bytes), chunk_bytes(tuning.message_chunk_bytes) {
  const auto members = static_cast<size_t>(size);
  size_t at = sizeof(MemberHeader);
  const auto reserve = [&at](size_t length) {
    const size_t start = round_up(at, kLine);
    at = start + length;
    return start;
  };
  state = reserve(sizeof(MemberState));
  failure = reserve(sizeof(FailureCell));
  records = reserve(2 * sizeof(EpochRecord));
  decision = reserve(sizeof(DecisionCell));
  ballot_words = kBallotBytes / sizeof(uint64_t);
  ballots = reserve(2 * SharedRecord::bytes(ballot_words));
  proposal_words = kProposalBytes / sizeof(uint64_t) + 2 * MemberSet::words_for(size);
  proposals = reserve(2 * SharedRecord::bytes(proposal_words));
  send_channels = reserve(members * sizeof(SendChannel));
  recv_channels = reserve(members * sizeof(RecvChannel));
  lengths = reserve(4 * members * sizeof(uint64_t));
  // The extra line keeps the staging buffers from using the same cache sets.
  slot_stride = round_up(sizeof(Slot) + stage_bytes, 4096) + kLine;
  slots = reserve(2 * slot_stride);
  chunks = reserve(members * 2 * chunk_bytes);
  bytes = round_up(at, 4096);
}

}  // namespace dsc
