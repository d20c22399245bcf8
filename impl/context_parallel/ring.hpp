// The communication of ring attention (Liu et al., arXiv 2310.01889). Blocks circulate among the ranks of a
// communicator, one step at a time, while each rank computes with its current block.
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

// The arguments of one pass, in which every block visits every rank. The sizes of blocks are equal on all
// ranks.
struct RingPass {
  const void* block;  // this rank's own block
  Division blocks;    // number of elements in each rank's block
  int32_t dtype;
  // Memory for the sum for this rank's own block, which is written at the end of the pass.
  void* grad;
  int32_t grad_dtype;      // 0 means that nothing is summed
  bool on_device = false;  // true if block and grad are in device memory
  void* stream = nullptr;  // on a device, the pass is ordered in this stream
};

// The block and the sum that a rank has at one step.
struct RingBlock {
  int source = -1;  // the rank that owns the block; -1 after the last step
  const void* data = nullptr;
  size_t count = 0;
  // Memory for this rank's contribution to the sum, initially zero; null if nothing is summed.
  void* grad = nullptr;
};

// A ring of ranks that passes blocks on. At step i, a rank has the block of the i-th rank before it, and the
// next block is being received. In a pass with gradients, the sum for each block follows the block by one
// step, so that sums also move during the computation. On a device, each step is put on the stream of the
// pass, and the host does not wait for it. Only one thread at a time may use a ring.
class BlockRing {
 public:
  // Collective. Makes a ring for blocks and sums of at most these sizes.
  static std::shared_ptr<BlockRing> create(Comm& comm, const RingSizes& sizes);
  BlockRing(std::shared_ptr<Comm> channel, const RingSizes& sizes);
  ~BlockRing();
  BlockRing(const BlockRing&) = delete;
  BlockRing& operator=(const BlockRing&) = delete;

  int rank() const noexcept { return channel_->rank(); }
  int size() const noexcept { return channel_->size(); }
  const RingSizes& sizes() const noexcept { return sizes_; }
  const Comm& channel() const noexcept { return *channel_; }
  // Returns true if a buffer overlaps the ring's memory.
  bool is_own_memory(const void* buffer, size_t bytes) const noexcept;
  // Returns true if the open pass sums gradients.
  bool sums() const noexcept { return pass_ && pass_->grad_dtype != 0; }

  // Collective. Begins a pass with checked arguments. If the previous pass was left early, it has no result.
  void begin(const RingPass& pass);
  // Advances to the next step and returns its block, which stays valid until the next call. Returns nullopt
  // if the deadline passed first. Throws STATE if no pass is open.
  std::optional<RingBlock> next(Deadline deadline);
  // Waits for the work that is now on the streams of passes. Returns false if the deadline passed first.
  // Throws if the ring has failed.
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
  const std::unique_ptr<RingMemory> device_memory_;  // null if the communicator is not bound to a device
  RingMemory* memory_ = nullptr;                     // memory of the latest pass
  std::optional<RingPass> pass_;
  int step_ = 0;
  bool is_shown_ = false;        // true once next() has returned the block of step 0
  std::shared_ptr<Work> moves_;  // messages of this step; null if there are none or all are done
};

}  // namespace dsc
