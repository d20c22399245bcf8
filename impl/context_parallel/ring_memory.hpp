// The memory through which a ring passes blocks on, and the arithmetic of its passes there: at once on the
// host, in the order of a stream on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/comm.hpp"

namespace dsc {

struct RingSizes {
  size_t block_bytes;
  size_t grad_bytes;
};

// Has areas for two blocks, two sums and the sum that comes in; none in a group of one rank. One thread at a
// time.
class RingMemory {
 public:
  static std::unique_ptr<RingMemory> on_host(Comm& channel, const RingSizes& sizes);
  // The communicator is bound to a device.
  static std::unique_ptr<RingMemory> on_device(Comm& channel, const RingSizes& sizes);
  virtual ~RingMemory() = default;
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  // Collective. Allocates the areas at the first call; fails on all ranks if it fails on one.
  void provide();
  // Areas alternate from step to step.
  std::byte* block(int step) const noexcept;
  std::byte* sum(int step) const noexcept;
  std::byte* incoming_sum() const noexcept;
  bool overlaps(const void* buffer, size_t bytes) const noexcept;

  // Throws why a pass, or its next step, is not possible now. Called before other ranks learn of it.
  virtual void check(void* stream, int32_t grad_dtype) const = 0;
  // What is done from now on is put on the stream, and follows what mark() has noted.
  virtual void follow(void* stream) = 0;
  virtual void zero(void* at, size_t bytes) = 0;
  virtual void add(int32_t dtype, void* sum, const void* more, size_t count) = 0;
  // Notes all that is on the stream now.
  virtual void mark() = 0;
  // Waits on the host for what mark() has noted; false if the deadline passes first.
  virtual bool wait_idle(Deadline deadline) = 0;

 protected:
  RingMemory(Comm& channel, const RingSizes& sizes) noexcept : channel_(channel), sizes_(sizes) {}
  Comm& channel() const noexcept { return channel_; }
  size_t bytes() const noexcept;
  // Leaves the areas allocated for ever, because a device may still use them.
  void keep() noexcept { static_cast<void>(areas_.release()); }

 private:
  struct Release {
    void operator()(std::byte* memory) const noexcept;
  };
  virtual void* allocate(size_t bytes) = 0;

  Comm& channel_;
  const RingSizes sizes_;
  std::unique_ptr<std::byte, Release> areas_;
};

}  // namespace dsc
