// Data that moves straight between the members' own buffers, all of which lie in memory of dsc_mem_alloc.
#pragma once

#include <memory>

#include "comm/transfer.hpp"
#include "engine_host/operation.hpp"
#include "engine_host/per_member.hpp"

namespace dsc {

// Around every access to another member's buffer. False when the group has failed: a member that leaves an
// operation first makes sure that the group is revoked, and then that nobody is inside.
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

class ZeroCopy {
 public:
  // Large enough to be worth a second meeting.
  static bool worthwhile(const Group& group, const Transfer& transfer) noexcept;

  // In place, this rank writes what others have not read yet.
  static bool overwrites_senders(const Transfer& transfer) noexcept {
    return transfer.pattern == Pattern::kAllToAll && transfer.send == transfer.recv;
  }

  // Whether the place of the receive buffer counts: others write there, or it stands for the memory of a rank
  // that sends nothing.
  static bool shows_recv(const Transfer& transfer) noexcept {
    return transfer.pattern == Pattern::kAllReduce || transfer.pattern == Pattern::kReduce ||
           !transfer.sends(transfer.rank);
  }

  // False if the members' buffers do not allow it: decided from what all have shown, so equally on all.
  static bool possible(const Group& group, const Transfer& transfer) noexcept;

  // `shown` holds the buffers that all have shown, `recv` this rank's receive buffer; null if it has shown
  // none. `found`, if not null, learns of the inputs that are not finite.
  ZeroCopy(Group& group, const Transfer& transfer, std::shared_ptr<Allocation> shown,
           std::shared_ptr<Allocation> recv, NonFinite* found);

  Progress step();
  // Whether step() waits for all to arrive, and for nothing else.
  bool awaits_arrival() const noexcept { return phase_ == Phase::kMeet && division_ == Division::kShares; }

 private:
  enum class Phase { kWork, kAwaitChunks, kMeet };
  enum class Division { kNone, kShares, kClaims };  // of a reduction among the ranks

  std::shared_ptr<Allocation> target_memory(std::shared_ptr<Allocation> own) const noexcept;
  void find_buffers();
  void divide();
  Progress work();
  Progress copy_piece();
  Progress reduce_piece();
  void reduce_elements(size_t first, size_t elements);
  Progress finish() noexcept;
  bool is_over() noexcept;
  bool in_place() const noexcept;

  Group& group_;
  const Transfer& transfer_;
  ReduceSpec spec_;
  NonFinite* const found_;
  const std::shared_ptr<Allocation> send_memory_;
  const std::shared_ptr<Allocation> recv_memory_;
  PerMember<const void*> sources_;  // each member's send buffer
  PerMember<void*> targets_;        // the receive buffers where others write
  Division division_ = Division::kNone;
  size_t chunk_ = 0;  // elements
  uint64_t chunks_ = 0;
  uint64_t next_chunk_ = 0;  // of a rank that works for itself
  int turn_ = 0;             // senders that were read
  Phase phase_ = Phase::kWork;
};

// Leaving an operation whose buffers other ranks may still be using. True once nobody touches them any more.
class Departure {
 public:
  explicit Departure(Group& group) noexcept : group_(group) {}
  bool done(const void* send, size_t send_bytes, const void* recv, size_t recv_bytes) noexcept;

 private:
  bool others_work(bool& only_strangers) const noexcept;
  void detach(const void* buffer, size_t bytes);

  Group& group_;
  Deadline patience_ = Deadline::after_ms(100);
};

}  // namespace dsc
