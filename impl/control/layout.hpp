// What lies in shared memory. Every structure is zero at first, is written by one rank unless it says
// otherwise, and stands on cache lines of its own. Whatever is read here may come from a rank gone mad: copy
// once, check, then use.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "control/notifier.hpp"
#include "control/processors.hpp"
#include "control/tuning.hpp"

namespace dsc {

inline constexpr uint64_t kPageMagic = 0x6567615063736400u;
inline constexpr uint64_t kMemberMagic = 0x626d654d63736400u;
inline constexpr uint32_t kLayoutVersion = 3;
inline constexpr size_t kLine = 128;  // two lines of 64: processors fetch them in pairs

enum class ProcessState : uint32_t { kRunning = 0, kLeft = 1 };

// One per process.
struct alignas(kLine) ProcessPage {
  uint64_t magic;
  uint32_t version;
  int32_t pid;
  ProcessorSet processors;
  std::atomic<ProcessState> state;
  alignas(kLine) std::atomic<uint64_t> heartbeat;
  alignas(kLine) Notifier notifier;
};

// Arguments of an operation as all ranks see them.
struct CallFields {
  uint64_t count;
  uint64_t tag;
  uint64_t op_id;
  double prescale;
  int32_t dtype;
  int32_t op;
  int32_t root;
  uint8_t kind;
  uint8_t has_payload;  // the first part of the data stands in the stage already
  uint8_t nonfinite;
  uint8_t unused;
};

// A buffer that others reach: a segment of the world's memory and a place in it. Segment 0: private memory.
struct SharedPlace {
  uint64_t segment;
  uint64_t offset;
};

// A rank's arrival at a tick. The tick is stored last, everything else before it.
struct alignas(kLine) Slot {
  std::atomic<uint64_t> tick;
  uint64_t fingerprint;
  CallFields call;
  SharedPlace send;
  alignas(kLine) SharedPlace recv;
  uint64_t sequence;
  char note[40];
  uint64_t nonfinite_count;  // among the inputs that this rank has read
  uint64_t nonfinite_index;
  int64_t nonfinite_rank;
};

// Shared counters of one tick, written by all ranks; they lie with member 0. Each word carries the tick it
// belongs to, so nobody has to reset it.
struct alignas(kLine) TickRecord {
  std::atomic<uint64_t> claim;
  alignas(kLine) std::atomic<uint64_t> done;
};

// First cause of a group's failure. The word lies with member 0 and is set once, by anybody; the text lies
// with the rank that set it and was written before.
struct alignas(kLine) FailureCell {
  std::atomic<uint64_t> word;
  int32_t ranks_at_fault;
  int32_t fault_list[64];
  uint64_t sequence;
  int64_t elapsed_ns;
  char operation[32];
  char text[512];
};

// Of consensus.hpp.
inline constexpr size_t kBallotBytes = 256;
inline constexpr size_t kProposalBytes = 256;  // and two sets of members behind

// What the members that still live have agreed upon. With member 0; it changes by compare-and-swap.
struct alignas(kLine) DecisionCell {
  std::atomic<uint64_t> word;  // number << 16 | member whose proposal counts
};

struct alignas(kLine) MemberHeader {
  uint64_t magic;
  uint32_t version;
  int32_t size;
  int32_t rank;
  uint32_t stage_bytes;
  uint64_t group;
};

struct alignas(kLine) MemberState {
  std::atomic<uint32_t> working;  // threads of this rank that are in other ranks' memory now
  std::atomic<uint32_t> left;     // not 0: this rank takes no further part, 2: because it finalizes the world
  std::atomic<uint64_t> latest;   // the operation that it began last, for those who wait for it: see Group
  std::atomic<uint32_t> busy;     // 1: it moves or reduces what the others wait for
};

// Messages of one direction between two ranks, by parity of their number.
struct alignas(kLine) MessagePost {
  std::atomic<uint64_t> number;
  uint64_t fingerprint;
  CallFields call;
  SharedPlace place;
};

struct alignas(kLine) SendChannel {  // with the sender
  std::array<MessagePost, 2> posts;
  alignas(kLine) std::atomic<uint64_t> produced;  // chunks of all messages so far
};

struct alignas(kLine) RecvChannel {  // with the receiver
  std::array<MessagePost, 2> posts;
  alignas(kLine) std::atomic<uint64_t> consumed;  // chunks of all messages so far
  std::atomic<uint64_t> finished;                 // number of the last message that is complete
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

// Where everything lies in a member's segment.
struct Geometry {
  Geometry(int size, const Tuning& tuning);

  size_t stage_bytes;  // room for data at each parity
  size_t chunk_bytes;  // of a message; two per direction
  size_t header = 0;
  size_t state;
  size_t failure;
  size_t records;  // 2
  size_t decision;
  size_t ballots;    // 2, by parity of their number
  size_t proposals;  // 2
  size_t ballot_words;
  size_t proposal_words;
  size_t slots;  // 2, each followed by its stage
  size_t slot_stride;
  size_t lengths;        // 2 x 2 x size: of blocks sent and expected, where they differ
  size_t send_channels;  // size
  size_t recv_channels;  // size
  size_t chunks;         // size x 2
  size_t bytes;
};

}  // namespace dsc
