// The memory of full buffers and shards (host or device), the copies between them, and the order in which
// they happen.
//
// In host memory every function has done its work when it returns. On a device it puts its work on one
// stream, so that it comes behind what was put there before; only wait() and square_sum() wait for it. No
// function waits without a deadline.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/comm.hpp"
#include "sharded/flat_offsets.hpp"

namespace dsc {

// The part of a bucket that this rank keeps.
struct GradientShard {
  std::byte* data;
  size_t count;
  int32_t dtype;
};

struct ShardMemoryOptions {
  const FlatOffsets& full;
  size_t shard_bytes = 0;  // 0: shards are parts of the full buffers
  bool keeps_full = true;  // units have memory for ever, otherwise only while they are open
  size_t pool_bytes = 0;   // from which units have memory while they are open
  bool faults = false;     // an access to a closed unit ends in SIGSEGV, where the memory can do that
};

// Copies elements, or adds them to what is there; those of another type are converted first.
struct ElementCopy {
  std::byte* to;
  int32_t to_dtype;
  const void* from;
  int32_t from_dtype;
  size_t count;
  bool adds = false;
};

// One implementation for host memory, one for devices.
class ShardMemory {
 public:
  // Operations that come behind other operations, and before anything else needs these, have a stream of
  // their own, where no gradient waits for them.
  enum class Queue : uint8_t { kMain, kBetweenOperations };

  virtual ~ShardMemory() = default;  // frees the memory unless keep() was called

  // --- Memory.
  // Returns the address of the units' addresses; null if a unit has an address only while it is open.
  virtual std::byte* views() const noexcept = 0;
  // Returns where operations find a unit that is open.
  virtual std::byte* buffer(size_t unit) const noexcept = 0;
  // Returns whether a unit that was opened may hold anything, and not zeros.
  virtual bool is_dirty(size_t unit) const noexcept = 0;
  // Zeros at first.
  virtual std::byte* shards() const noexcept = 0;
  // Bytes that this rank holds for full buffers, the pool included, and by how much open() would add to them.
  virtual size_t held() const noexcept = 0;
  virtual size_t growth(size_t unit) const = 0;
  // Gives a unit memory; `may_pool` is false if the caller may have written to its pages already.
  virtual void open(size_t unit, bool may_pool) = 0;
  // Takes the memory of a unit away, or zeros it if it is kept for ever.
  virtual void close(size_t unit) = 0;
  // Never frees the memory, because operations may still use it.
  virtual void keep() noexcept = 0;
  // Returns memory for work of this object only.
  virtual std::shared_ptr<std::byte> scratch(size_t bytes) = 0;

  // --- Order.
  virtual bool in_stream_order() const noexcept = 0;
  // Returns the stream for operations; null in host memory.
  virtual void* stream(Queue queue = Queue::kMain) const noexcept = 0;
  // Throws UNSUPPORTED for a stream that cannot be used here.
  virtual void check_stream(void* stream) const = 0;
  // Throws INVALID_ARG if a gradient, which may be null, is in other memory. Any thread.
  virtual void check_gradient(const void* gradient, const std::string& who) const = 0;
  // What comes here later waits for what is on the caller's stream now, or the other way round. Any thread.
  virtual void follow(void* stream) = 0;
  virtual void lead(void* stream) = 0;
  // What comes here later, in this queue, comes behind an operation. Returns how the operation has ended, as
  // far as that is known.
  virtual Failure await(Work& work, Queue queue = Queue::kMain) = 0;
  // Waits until all is done.
  virtual void wait() = 0;
  virtual bool wait_idle(Deadline deadline) noexcept = 0;

  // --- Elements. Any thread, several at once for different elements.
  virtual void put(const ElementCopy& copy) = 0;
  virtual void zero(std::byte* at, size_t bytes) = 0;
  virtual void multiply(const GradientShard& elements, double factor) = 0;
  virtual void divide(const GradientShard& elements, int divisor) = 0;
  // Adds the squares in f64, in an order that is the same at every call.
  virtual double square_sum(std::span<const GradientShard> shards) = 0;
};

// Both are collective in `group`; the second one uses the device to which the group is bound.
std::unique_ptr<ShardMemory> make_host_memory(Comm& group, const ShardMemoryOptions& options);
std::unique_ptr<ShardMemory> make_device_memory(Comm& group, const ShardMemoryOptions& options);

// Returns what offsets of units must be multiples of.
size_t unit_alignment(bool on_device, bool keeps_full) noexcept;

}  // namespace dsc
