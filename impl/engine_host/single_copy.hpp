// Moves data between ordinary buffers of the members. Each member lets the kernel copy what it needs from the
// buffers of the others. Nobody writes to the memory of another member, so a member that leaves after a
// failure need not wait for the others.
//
// A reduction to all ranks has two steps. First each rank reduces its share of the data. Then it reads the
// other shares from the receive buffers of the ranks that reduced them.
#pragma once

#include "comm/transfer.hpp"
#include "engine_host/operation.hpp"
#include "engine_host/per_member.hpp"

namespace dsc {

// Reads memory of a member's process. Returns kMoved if all parts have been read, kPending if the process has
// ended, and kFailed if the group has failed. After a failure the owner of the memory may have changed it.
Progress read_member(const Group& group, int member, PeerRead& parts);

// Returns the buffer for publication. It is empty if other processes cannot read it.
ReadableMemory readable_memory(const void* buffer, size_t bytes) noexcept;

class SingleCopy {
 public:
  // Writes to a slot which buffers of this rank the others may read. Returns whether they will probably read
  // the send buffer. If the lengths are not known yet, all ranks publish their buffers.
  static bool offer(const Group& group, const Transfer& transfer, Slot& slot) noexcept;
  // True if all ranks have offered what the others read. The answer is equal on all ranks.
  static bool possible(const Group& group, const Transfer& transfer) noexcept;

  // `found`, if not null, counts the inputs that are not finite.
  SingleCopy(Group& group, const Transfer& transfer, NonFinite* found);

  Progress step();
  // True if step() waits only for the arrival of all members.
  bool awaits_arrival() const noexcept { return phase_ == Phase::kMeet; }

 private:
  enum class Phase { kReduce, kMeet, kCopy, kEnd };

  void find_buffers();
  Progress reduce_piece();
  void reduce_elements(size_t index, size_t to, size_t elements, size_t in_scratch);
  Progress copy_piece();
  Progress copy_from(int sender, const Block& block, size_t elements);
  Block shared_block(int member) const noexcept;  // its share in a reduction to all ranks
  Block block_from(int sender) const noexcept;
  bool combines() const noexcept { return transfer_.pattern == Pattern::kAllReduce; }
  Progress read_runs(int member, uint64_t source, const Block& block, size_t elements, std::byte* packed);
  std::byte* scratch_of(int member) const noexcept;

  Group& group_;
  const Transfer& transfer_;
  ReduceSpec spec_;
  NonFinite* const found_;
  PerMember<uint64_t> sources_;  // addresses of the send buffers, in the processes of their members
  PerMember<uint64_t> results_;  // likewise of the receive buffers, if ranks read results from each other
  size_t chunk_;                 // elements
  std::byte* scratch_;           // this rank's next stage, which no other rank accesses during this operation
  size_t done_ = 0;              // elements of the current block
  int turn_ = 0;                 // number of senders that were read
  Phase phase_;
};

}  // namespace dsc
