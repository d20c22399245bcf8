// The memory for the blocks and sums of a ring. The class also orders the work of passes on this memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "memory/space.hpp"

namespace dsc {

struct RingSizes {
  size_t block_bytes;
  size_t grad_bytes;
};

// Contains areas for two blocks, two sums and an incoming sum; in a group of one rank there are none. Only
// one thread at a time may use an object.
class RingMemory {
 public:
  RingMemory(Comm& channel, bool on_device, const RingSizes& sizes)
      : space_(Space::of(channel, on_device)), sizes_(sizes) {}
  ~RingMemory();
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  // Collective. Allocates the areas in the first call. If this fails on one rank, it fails on all ranks.
  void provide();
  // Return the areas of a step. Even and odd steps use different areas.
  std::byte* block(int step) const noexcept;
  std::byte* sum(int step) const noexcept;
  std::byte* incoming_sum() const noexcept;
  bool overlaps(const void* buffer, size_t bytes) const noexcept;

  // Throws if a pass, or its next step, is not possible now. Called before other ranks know about it.
  void check(void* stream, int32_t grad_dtype) const;
  // Selects the stream for later work. It is ordered after the work that mark() has recorded.
  void follow(void* stream);
  void zero(void* at, size_t bytes) { space_->zero(at, bytes, stream_); }
  void add(int32_t dtype, void* sum, const void* more, size_t count) {
    space_->add({sum, dtype, more, dtype, count}, stream_);
  }
  // Records all work that is on the stream now.
  void mark() { marked_ = space_->mark(stream_); }
  // Waits on the host for the work that mark() has recorded. Returns false if the deadline passes first.
  bool wait_idle(Deadline deadline) { return space_->wait_for(marked_, deadline); }

 private:
  size_t bytes() const noexcept;

  const std::unique_ptr<Space> space_;
  const RingSizes sizes_;
  Memory areas_;
  void* stream_ = nullptr;
  Mark marked_;
};

}  // namespace dsc
