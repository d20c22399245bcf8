// Blocks that circulate among the ranks of a communicator, one step at a time, while each rank computes with
// the block that it has: the communication of ring attention (Liu et al., arXiv 2310.01889).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/comm.hpp"
#include "comm/division.hpp"
#include "context_parallel/ring_memory.hpp"
#include "control/call.hpp"

namespace dsc {

// One circulation. The blocks' sizes are equal on all ranks.
struct RingPass {
  const void* block;  // this rank's own
  Division blocks;    // elements of each rank's block
  int32_t dtype;
  void* grad;              // the sum for this rank's block is written here at the end
  int32_t grad_dtype;      // 0: nothing is summed
  bool on_device = false;  // whether block and grad are on a device
  void* stream = nullptr;  // on a device: the pass is ordered in this stream
};

// What a rank has at one step.
struct RingBlock {
  int source = -1;  // rank whose block it is; -1 after the last step
  const void* data = nullptr;
  size_t count = 0;
  void* grad = nullptr;  // zeroed, for what this rank adds; null if nothing is summed
};

// At step i a rank has the block of the i-th rank before it, and the next block is under way. In a pass with
// gradients the sum for each block follows the block by one step, so that it also travels during the
// computation. On a device each step is put on the stream of the pass, and the host does not wait for it. One
// thread at a time.
class BlockRing {
 public:
  // Collective. Makes a channel for blocks and sums of at most so many bytes.
  static std::shared_ptr<BlockRing> create(Comm& comm, const RingSizes& sizes);
  BlockRing(std::shared_ptr<Comm> channel, const RingSizes& sizes);
  ~BlockRing();
  BlockRing(const BlockRing&) = delete;
  BlockRing& operator=(const BlockRing&) = delete;

  int rank() const noexcept { return channel_->rank(); }
  int size() const noexcept { return channel_->size(); }
  const RingSizes& sizes() const noexcept { return sizes_; }
  const Comm& channel() const noexcept { return *channel_; }
  // Returns whether a buffer overlaps the ring's memory.
  bool is_own_memory(const void* buffer, size_t bytes) const noexcept;
  // Returns whether the open pass sums gradients.
  bool sums() const noexcept { return pass_ && pass_->grad_dtype != 0; }

  // Collective. Begins a pass, whose arguments were checked. A pass that was left early has no result.
  void begin(const RingPass& pass);
  // Advances to the next step and returns its block, which stays valid until the call after it; nullopt if
  // the deadline passed first. Throws STATE if no pass is open.
  std::optional<RingBlock> next(Deadline deadline);
  // Waits for the work that is now on the streams of passes; false if the deadline passes first. Throws the
  // failure of the ring.
  bool synchronize(Deadline deadline);

  std::atomic<bool> in_call{false};

 private:
  int source_at(int step) const noexcept { return (rank() - step % size() + size()) % size(); }
  size_t count_at(int step) const noexcept { return pass_->blocks.part(source_at(step)); }
  const void* block_at(int step) const noexcept;
  void* sum_at(int step) const noexcept;
  RingMemory& memory_of(const RingPass& pass) const noexcept;
  void compare(const RingPass& pass);
  bool arrived(Deadline deadline);
  void enter(int step);
  template <typename Part>
  void carry_out(const Part& part);
  void exchange();
  RingBlock show();
  void end_pass();

  const std::shared_ptr<Comm> channel_;
  const RingSizes sizes_;
  const std::unique_ptr<RingMemory> host_memory_;
  const std::unique_ptr<RingMemory> device_memory_;  // null if the communicator is bound to no device
  RingMemory* memory_ = nullptr;                     // that of the latest pass
  std::optional<RingPass> pass_;
  int step_ = 0;
  bool is_shown_ = false;        // whether the caller has had the block of step 0
  std::shared_ptr<Work> moves_;  // started at this step; null if nothing was, or all has arrived
};

}  // namespace dsc
