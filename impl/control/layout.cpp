#include "control/layout.hpp"

#include <algorithm>

#include "control/member_set.hpp"
#include "control/shared_record.hpp"

namespace dsc {
namespace {

constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Large enough that the cost of an arrival vanishes, small enough that the stages of all ranks stay in the
// cache.
size_t stage_bytes_for(int size) {
  if (size == 1) return 4096;  // nothing ever passes through
  if (size == 2) return size_t{256} << 10;
  if (size <= 8) return size_t{512} << 10;
  return size <= 16 ? size_t{128} << 10 : size_t{64} << 10;
}

// All chunks of a rank together stay within half a MiB.
size_t chunk_bytes_for(int size) {
  if (size == 1) return 0;
  const size_t fair = (size_t{512} << 10) / (2 * static_cast<size_t>(size));
  return std::clamp<size_t>(fair / 4096 * 4096, 4096, size_t{64} << 10);
}

}  // namespace

Geometry::Geometry(int size) : stage_bytes(stage_bytes_for(size)), chunk_bytes(chunk_bytes_for(size)) {
  const auto members = static_cast<size_t>(size);
  size_t at = sizeof(MemberHeader);
  const auto place = [&at](size_t length) {
    const size_t start = round_up(at, kLine);
    at = start + length;
    return start;
  };
  state = place(sizeof(MemberState));
  failure = place(sizeof(FailureCell));
  records = place(2 * sizeof(TickRecord));
  decision = place(sizeof(DecisionCell));
  ballot_words = kBallotBytes / sizeof(uint64_t);
  ballots = place(2 * SharedRecord::bytes(ballot_words));
  proposal_words = kProposalBytes / sizeof(uint64_t) + 2 * MemberSet::words_for(size);
  proposals = place(2 * SharedRecord::bytes(proposal_words));
  send_channels = place(members * sizeof(SendChannel));
  recv_channels = place(members * sizeof(RecvChannel));
  lengths = place(4 * members * sizeof(uint64_t));
  slot_stride = round_up(sizeof(Slot) + stage_bytes, 4096) + kLine;  // stages must not share cache sets
  slots = place(2 * slot_stride);
  chunks = place(members * 2 * chunk_bytes);
  at = round_up(at, 4096);
  result = place(2 * stage_bytes);
  bytes = round_up(at, 4096);
}

}  // namespace dsc
