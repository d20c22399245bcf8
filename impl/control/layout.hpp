// The layout of shared memory. Every structure starts as zeros, is written by one rank unless noted
// otherwise, and has its own cache lines. A corrupted or hostile peer may have written any value that is read
// here: copy it once, check it, then use the copy.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/failure.hpp"
#include "control/notifier.hpp"
#include "control/processors.hpp"
#include "control/tuning.hpp"

namespace dsc {

inline constexpr uint64_t kPageMagic = 0x6567615063736400u;
inline constexpr uint64_t kMemberMagic = 0x626d654d63736400u;
inline constexpr uint32_t kLayoutVersion = 6;
inline constexpr size_t kLine = 128;  // two lines of 64 bytes, because processors prefetch them in pairs

enum class ProcessState : uint32_t { kRunning = 0, kLeft = 1 };

// State of one process, visible to all processes of its world.
struct alignas(kLine) ProcessPage {
  uint64_t magic;
  uint32_t version;
  int32_t pid;
  ProcessorSet processors;
  std::atomic<ProcessState> state;
  alignas(kLine) std::atomic<uint64_t> heartbeat;
  alignas(kLine) Notifier notifier;
};

// The arguments of an operation that other ranks see.
struct CallFields {
  uint64_t count;
  uint64_t tag;
  uint64_t op_id;
  double prescale;
  int32_t dtype;
  int32_t op;
  int32_t root;
  uint8_t kind;
  uint8_t nonfinite;
  uint8_t unused[2];
};

// Location of a shared buffer: a segment of the world's memory and an offset. Segment 0 means private memory.
struct SharedLocation {
  uint64_t segment;
  uint64_t offset;
};

// Data of at most this size lies in the line that carries its owner's arrival.
inline constexpr size_t kSlotDataBytes = kLine - 3 * sizeof(uint64_t);

// A rank's arrival at an epoch. `epoch` is stored last, after everything else. The first line is all that
// the other ranks read of a small operation, because each line costs them a transfer between processors.
struct alignas(kLine) Slot {
  std::atomic<uint64_t> epoch;
  uint64_t fingerprint;
  uint64_t has_payload;  // 1: the first part of the data is already in `data` or in the stage
  std::array<std::byte, kSlotDataBytes> data;
  CallFields call;
  SharedLocation send;
  SharedLocation recv;
  uint64_t sequence;
  char note[40];
  uint64_t nonfinite_count;  // among the inputs that this rank has read
  uint64_t nonfinite_index;
  int64_t nonfinite_rank;
};

// Shared counters of one epoch, which all ranks write; they lie in member 0's segment. Each word contains its
// epoch, so that it never has to be reset.
struct alignas(kLine) EpochRecord {
  std::atomic<uint64_t> claim;
  alignas(kLine) std::atomic<uint64_t> done;
};

// First cause of a group's failure. The word in member 0's segment is set once, by any member. The cause
// itself was written before, in the segment of that member.
struct alignas(kLine) FailureCell {
  std::atomic<uint64_t> word;
  Failure cause;
};

// Sizes of the records that Consensus uses.
inline constexpr size_t kBallotBytes = 256;
inline constexpr size_t kProposalBytes = 256;  // followed by two sets of members

// The latest decision of the living members, in member 0's segment. It changes by compare-and-swap.
struct alignas(kLine) DecisionCell {
  std::atomic<uint64_t> word;  // number << 16 | member whose proposal was chosen
};

// Identifies a member's segment, so that other members can check it when they map it.
struct alignas(kLine) MemberHeader {
  uint64_t magic;
  uint32_t version;
  int32_t size;
  int32_t rank;
  uint32_t stage_bytes;
  uint64_t group;
};

// State of a member, which other members read while they wait for it.
struct alignas(kLine) MemberState {
  std::atomic<uint32_t> working;  // number of threads of this rank that are accessing other ranks' memory now
  std::atomic<uint32_t>
      left;  // nonzero: this rank takes part in no further operation; 2: because it finalizes the world
  // operation that the rank began last, packed as described in group.cpp; used in error texts
  std::atomic<uint64_t> latest;
  std::atomic<uint32_t> busy;  // 1 while the rank moves or reduces data for which others wait
};

// One message from one rank to another. Posts alternate by the parity of the message's sequence number, which
// is stored last. The other end of a small message reads only the first line.
struct alignas(kLine) MessagePost {
  std::atomic<uint64_t> sequence;
  uint64_t fingerprint;
  std::array<std::byte, kSlotDataBytes> data;
  alignas(kLine) CallFields call;
  SharedLocation location;
};

struct alignas(kLine) SendChannel {  // in the sender's segment
  std::array<MessagePost, 2> posts;
  alignas(kLine) std::atomic<uint64_t> produced;  // chunks of all messages so far
};

struct alignas(kLine) RecvChannel {  // in the receiver's segment
  std::array<MessagePost, 2> posts;
  alignas(kLine) std::atomic<uint64_t> consumed;  // chunks of all messages so far
  std::atomic<uint64_t> finished;                 // sequence number of the last complete message
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

// Offsets of all parts of a member's segment, in bytes. A comment that is a number is the count of elements.
struct Geometry {
  Geometry(int size, const Tuning& tuning);

  size_t stage_bytes;  // size of the stage of each parity
  size_t chunk_bytes;  // size of a chunk of a message; there are two per direction
  size_t header = 0;
  size_t state;
  size_t failure;
  size_t records;  // 2
  size_t decision;
  size_t ballots;    // 2, selected by the parity of their number
  size_t proposals;  // 2
  size_t ballot_words;
  size_t proposal_words;
  size_t slots;  // 2, each followed by its stage
  size_t slot_stride;
  // 2 x 2 x size: lengths of blocks sent and expected, of operations whose blocks differ in length
  size_t lengths;
  size_t send_channels;  // size
  size_t recv_channels;  // size
  size_t chunks;         // size x 2
  size_t bytes;
};

}  // namespace dsc
