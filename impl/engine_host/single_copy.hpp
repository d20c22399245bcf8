// Moves data between ordinary buffers of the members. Each member lets the kernel copy what it needs from the
// buffers of the others. No member writes to the memory of another, so a member that leaves after a
// failure need not wait for the others. Reductions pass through staging buffers instead.
#pragma once

#include "comm/transfer.hpp"
#include "engine_host/operation.hpp"
#include "engine_host/per_member.hpp"

namespace dsc {

// Reads memory of a member's process. Returns kMoved if all parts have been read, kPending if the process has
// ended, and kFailed if the group has failed. After a failure the owner of the memory may have changed it.
Progress read_member(const Group& group, int member, PeerRead& parts);

// Returns the buffer for publication. The address is 0 if other processes cannot read it.
ReadableMemory readable_memory(const void* buffer, size_t bytes) noexcept;

class SingleCopy {
 public:
  // Writes to the slot which buffer of this rank the others may read. Returns whether they will probably read
  // it. If the lengths are not known yet, all ranks publish their buffers.
  static bool offer(const Group& group, const Transfer& transfer, Slot& slot) noexcept;
  // True if all senders have offered their buffers. The answer is equal on all ranks.
  static bool possible(const Group& group, const Transfer& transfer) noexcept;

  SingleCopy(Group& group, const Transfer& transfer);

  Progress step();
  // True if step() waits only for the arrival of all members.
  bool awaits_arrival() const noexcept { return false; }

 private:
  void find_buffers();
  Progress copy_piece();
  Progress copy_from(int sender, const Block& block, size_t elements);

  Group& group_;
  const Transfer& transfer_;
  PerMember<uint64_t> sources_;  // addresses of the send buffers, in the processes of their members
  const size_t chunk_;           // elements
  size_t done_ = 0;              // elements of the current block
  int turn_ = 0;                 // number of senders that were read
  bool has_all_ = false;
};

}  // namespace dsc
