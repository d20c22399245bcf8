// The memory through which a ring passes blocks on. It also orders the work of its passes on that memory.
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

// Has areas for two blocks, two sums and the sum that arrives; none in a group of one rank. One thread at a
// time.
class RingMemory {
 public:
  RingMemory(Comm& channel, bool on_device, const RingSizes& sizes)
      : space_(Space::of(channel, on_device)), sizes_(sizes) {}
  ~RingMemory();
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  // Collective. Allocates the areas at the first call; fails on all ranks if it fails on one.
  void provide();
  // Areas alternate from step to step.
  std::byte* block(int step) const noexcept;
  std::byte* sum(int step) const noexcept;
  std::byte* incoming_sum() const noexcept;
  bool overlaps(const void* buffer, size_t bytes) const noexcept;

  // Throws the reason why a pass, or its next step, is not possible now. Called before other ranks learn of
  // it.
  void check(void* stream, int32_t grad_dtype) const;
  // From now on, work is put on `stream`, ordered after what mark() has noted.
  void follow(void* stream);
  void zero(void* at, size_t bytes) { space_->zero(at, bytes, stream_); }
  void add(int32_t dtype, void* sum, const void* more, size_t count) {
    space_->add({sum, dtype, more, dtype, count}, stream_);
  }
  // Notes all work that is on the stream now.
  void mark() { marked_ = space_->mark(stream_); }
  // Waits on the host for what mark() has noted; false if the deadline passes first.
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
