// The layout of shared memory. Every structure initially consists of zeros. Unless noted otherwise, one rank
// writes it, and it has its own cache lines. A corrupted or hostile peer may have written any value that is
// read here. Therefore copy a value once, check the copy, and then use only the copy.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/failure.hpp"
#include "control/notifier.hpp"
#include "control/peer_memory.hpp"
#include "control/processors.hpp"
#include "control/tuning.hpp"

namespace dsc {

inline constexpr uint64_t kPageMagic = 0x6567615063736400u;
inline constexpr uint64_t kMemberMagic = 0x626d654d63736400u;
inline constexpr uint32_t kLayoutVersion = 8;
inline constexpr size_t kLine = 128;  // two lines of 64 bytes, because processors prefetch them in pairs

enum class ProcessState : uint32_t { kRunning = 0, kLeft = 1 };

// State of one process, visible to all processes of its world.
struct alignas(kLine) ProcessPage {
  uint64_t magic;
  uint32_t version;
  int32_t pid;
  ProcessorSet processors;
  MemoryProbe probe;
  std::atomic<int32_t> monitor_thread;  // a thread that lives as long as the process
  std::atomic<ProcessState> state;
  alignas(kLine) std::atomic<uint64_t> heartbeat;
  alignas(kLine) Notifier notifier;
};

// The arguments of an operation that other ranks can see.
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

// Where a shared buffer is: a segment of the world's memory and an offset. Segment 0 means private memory.
struct SharedLocation {
  uint64_t segment;
  uint64_t offset;
};

// Memory of a member that other members may read through the kernel, by its address in the member's process.
// Address 0 means that they may not.
struct ReadableMemory {
  uint64_t address;
  uint64_t bytes;
};

// Data of at most this size is in the same cache line as the arrival of its owner.
inline constexpr size_t kSlotDataBytes = kLine - 3 * sizeof(uint64_t);

// A rank's arrival at an epoch. `epoch` is stored last, after everything else. Of a small operation, other
// ranks read only the first cache line, because each line costs them a transfer between processors.
struct alignas(kLine) Slot {
  std::atomic<uint64_t> epoch;
  uint64_t fingerprint;
  uint64_t has_payload;  // 1: the first part of the data is already in `data` or in the staging buffer
  std::array<std::byte, kSlotDataBytes> data;
  CallFields call;
  SharedLocation send;
  SharedLocation recv;
  ReadableMemory send_memory;
  uint64_t sequence;
  char note[40];
  uint64_t nonfinite_count;  // number of NaN and infinite values among the inputs that this rank has read
  uint64_t nonfinite_index;
  int64_t nonfinite_rank;
};

// Shared counters of one epoch, in member 0's segment. All ranks write them. Each word contains its epoch, so
// it never has to be reset.
struct alignas(kLine) EpochRecord {
  std::atomic<uint64_t> claim;
  alignas(kLine) std::atomic<uint64_t> done;
};

// First cause of a group's failure. The word in member 0's segment is set once, by any member. Before that,
// this member has written the cause into its own segment.
struct alignas(kLine) FailureCell {
  std::atomic<uint64_t> word;
  Failure cause;
};

// Sizes of the records that Consensus uses.
inline constexpr size_t kBallotBytes = 256;
inline constexpr size_t kProposalBytes = 256;  // followed by two sets of members

// The latest decision of the living members, in member 0's segment. It is changed by compare-and-swap.
struct alignas(kLine) DecisionCell {
  std::atomic<uint64_t> word;  // sequence number << 16 | member whose proposal was chosen
};

// Identifies a member's segment, so that other members can check it when they map it.
struct alignas(kLine) MemberHeader {
  uint64_t magic;
  uint32_t version;
  int32_t size;
  int32_t rank;
  uint32_t stage_bytes;
  uint64_t group;
  uint64_t single_copy_min_bytes;  // no limit if this rank cannot read the memory of all members
};

// State of a member, which other members read while they wait for it.
struct alignas(kLine) MemberState {
  std::atomic<uint32_t> working;  // number of threads of this rank that are accessing other ranks' memory now
  std::atomic<uint32_t> left;     // 1: takes part in no further operation; 2: because it finalizes the world
  // The operation that the rank began last, packed as described in group.cpp. Error messages show it.
  std::atomic<uint64_t> latest;
  std::atomic<uint32_t> busy;  // 1 while the rank moves or reduces data for which other ranks wait
};

// One message from one rank to another. Messages with even and odd sequence numbers use separate posts. The
// sequence number is stored last. For a small message, the peer reads only the first cache line.
struct alignas(kLine) MessagePost {
  std::atomic<uint64_t> sequence;
  uint64_t fingerprint;
  std::array<std::byte, kSlotDataBytes> data;
  alignas(kLine) CallFields call;
  SharedLocation location;
  ReadableMemory memory;
};

struct alignas(kLine) SendChannel {  // in the segment of the sender; both ends write `claim` and `done`
  std::array<MessagePost, 2> posts;
  alignas(kLine) std::atomic<uint64_t> produced;  // number of chunks of all messages so far
  // Pieces of the current message that an end has taken and copied, if both ends copy: see chunk_counter.hpp.
  std::atomic<uint64_t> claim;
  std::atomic<uint64_t> done;
};

struct alignas(kLine) RecvChannel {  // in the segment of the receiver
  std::array<MessagePost, 2> posts;
  alignas(kLine) std::atomic<uint64_t> consumed;  // number of chunks of all messages so far
  std::atomic<uint64_t> finished;                 // sequence number of the last complete message
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

// Offsets of all parts of a member's segment, in bytes. A number or `size` in a comment is the number of
// elements of that part.
struct Geometry {
  Geometry(int size, const Tuning& tuning);

  size_t stage_bytes;  // size of one staging buffer
  size_t chunk_bytes;  // size of a chunk of a message; there are two chunks per direction
  size_t header = 0;
  size_t state;
  size_t failure;
  size_t records;  // 2
  size_t decision;
  size_t ballots;    // 2, for even and odd sequence numbers
  size_t proposals;  // 2
  size_t ballot_words;
  size_t proposal_words;
  size_t slots;  // 2, each followed by its staging buffer
  size_t slot_stride;
  // 2 x 2 x size. For operations whose blocks differ in length: the lengths of the blocks that are sent and
  // expected.
  size_t lengths;
  size_t send_channels;  // size
  size_t recv_channels;  // size
  size_t chunks;         // size x 2
  size_t bytes;
};

}  // namespace dsc
