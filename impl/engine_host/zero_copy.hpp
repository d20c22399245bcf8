// Moves data directly between the members' buffers, in memory of dsc_mem_alloc() or dsc_mem_register(). All
// send buffers must be in such memory, and in reductions to all ranks the receive buffers too. If other
// receive buffers are in such memory, other ranks may write to them.
#pragma once

#include "comm/transfer.hpp"
#include "engine_host/operation.hpp"
#include "engine_host/per_member.hpp"
#include "engine_host/shared_buffers.hpp"

namespace dsc {

// Guards every access to another member's buffer. entered() is false if the group has failed. A member that
// leaves an operation first ensures that the group is revoked, and then that no rank still accesses its
// buffers.
class OthersMemory {
 public:
  explicit OthersMemory(Group& group) noexcept;
  ~OthersMemory();
  OthersMemory(const OthersMemory&) = delete;
  OthersMemory& operator=(const OthersMemory&) = delete;

  bool entered() const noexcept { return entered_; }

 private:
  Group& group_;
  const bool entered_;
};

// Fails the group of a rank whose memory has become private, because of the failure of another group, while
// others still wrote to the shared copy: their data is lost.
Progress fail_lost_writes(Group& group);

class ZeroCopy {
 public:
  // True if there is enough data to make up for a second barrier round. Equal on all ranks.
  static bool worthwhile(const Group& group, const Transfer& transfer) noexcept;

  // True if this rank receives in place and would overwrite data that others have not read yet.
  static bool overwrites_senders(const Transfer& transfer) noexcept {
    return transfer.pattern == Pattern::kAllToAll && transfer.send == transfer.recv;
  }

  // True if other ranks may write to the receive buffer of this rank.
  static bool shows_recv(const Transfer& transfer) noexcept { return may_be_target(transfer, transfer.rank); }

  // True if the members' buffers allow direct access. The answer follows from the published slots, so it is
  // equal on all ranks.
  static bool possible(const Group& group, const Transfer& transfer) noexcept;

  // `send` and `recv` are what this rank has published. `found`, if not null, counts the inputs that are not
  // finite.
  ZeroCopy(Group& group, const Transfer& transfer, const SharedRange& send, const SharedRange& recv,
           NonFinite* found);

  Progress step();
  // True if step() waits only for the arrival of all members.
  bool awaits_arrival() const noexcept { return phase_ == Phase::kMeet && division_ == Division::kShares; }

 private:
  enum class Phase { kWork, kAwaitChunks, kMeet };
  enum class Division { kNone, kShares, kClaims };  // how ranks share the work

  static bool may_be_target(const Transfer& transfer, int member) noexcept {
    if (transfer.pattern == Pattern::kBroadcast) return member != transfer.root;
    if (only_root_receives(transfer.pattern)) return member == transfer.root;
    return transfer.pattern == Pattern::kAllReduce || transfer.pattern == Pattern::kAllGather;
  }
  static bool shares_copies(const Group& group, const Transfer& transfer) noexcept;
  size_t target_count() const noexcept;
  // True if other ranks may write to the receive buffer of this member.
  bool is_target(int member) const noexcept { return !targets_.empty() && may_be_target(transfer_, member); }
  // These find buffers of other members when they are first needed. Call them only after taking work: see
  // PeerBuffers.
  const std::byte* source(int member);
  const PerMember<void*>& targets();
  std::byte* locate(int member, SharedLocation location, const SharedRange& own, size_t elements);
  void divide();
  Progress work();
  Progress copy_piece();
  Progress copy_chunk();
  void copy_to_targets(const std::byte* from, size_t at, size_t bytes);
  Progress reduce_piece();
  void reduce_elements(size_t index, size_t first, size_t elements);
  Progress finish() noexcept;
  bool is_over() noexcept;
  bool in_place() const noexcept;

  Group& group_;
  const Transfer& transfer_;
  ReduceSpec spec_;
  NonFinite* const found_;
  const SharedRange& send_;
  const SharedRange& recv_;
  const bool shares_copies_;  // all ranks take parts of the copies
  PeerBuffers peer_buffers_;
  PerMember<const void*> sources_;  // each member's send buffer; null until it is needed
  PerMember<void*> targets_;        // receive buffers that other ranks write; null until they are needed
  Division division_ = Division::kNone;
  size_t chunk_ = 0;  // elements
  uint64_t chunks_ = 0;
  uint64_t next_chunk_ = 0;  // of what this rank does itself
  int turn_ = 0;             // number of senders that were read
  Phase phase_ = Phase::kWork;
};

// Leaves an operation whose buffers other ranks may still access. done() returns true once no rank accesses
// them. If only ranks of other processes still do so after a while, this rank's memory becomes private, so
// that those ranks no longer affect it.
class Departure {
 public:
  explicit Departure(Group& group) noexcept : group_(group) {}
  // The ranges are the buffers that this rank exposes.
  bool done(const SharedRange& send, size_t send_bytes, const SharedRange& recv, size_t recv_bytes) noexcept;

 private:
  bool accessors_left(bool& only_other_processes) const noexcept;
  void detach(const SharedRange& range, size_t bytes);

  Group& group_;
  Deadline patience_ = Deadline::after_ms(100);
};

}  // namespace dsc
