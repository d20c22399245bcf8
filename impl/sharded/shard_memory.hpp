// The memory of full buffers and shards, and the streams for work on them.
//
// On a device, all work is put on one stream. Released memory may therefore be reused immediately, because
// its next use is later on the same stream. Only wait() and square_sum() wait for the stream. Every wait has
// a deadline.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "memory/space.hpp"
#include "sharded/unit_memory.hpp"

namespace dsc {

class ShardMemory {
 public:
  // Selects the stream of an operation. kBetweenOperations is for operations that run after other operations
  // and whose results are needed last. Gradients do not wait for that stream.
  enum class Queue : uint8_t { kMain, kBetweenOperations };

  // The constructor is collective in `group`. With 0 bytes of shards, the shards are parts of the full
  // buffers.
  ShardMemory(Comm& group, bool on_device, const FlatOffsets& full, size_t shard_bytes,
              const UnitOptions& options);

  UnitMemory& units() noexcept { return units_; }
  const UnitMemory& units() const noexcept { return units_; }
  // Returns the memory of the shards, which is initially zero.
  std::byte* shards() const noexcept { return shards_.get(); }
  // Returns temporary memory that only work of this object may use.
  Memory scratch(size_t bytes) { return space_->take(bytes, stream()); }
  // Leaks the memory on purpose, because operations may still use it.
  void keep() noexcept;

  bool in_stream_order() const noexcept { return space_->in_stream_order(); }
  // Returns the stream for operations; null in host memory.
  void* stream(Queue queue = Queue::kMain) const noexcept {
    return queue == Queue::kMain ? stream_.get() : between_.get();
  }
  // Throws UNSUPPORTED for a stream that cannot be used here.
  void check_stream(void* stream) const;
  void check_gradient(const void* gradient, const std::string& who) const {
    space_->check_gradient(gradient, who);
  }
  // follow() orders later work on this object's stream after the work that is on the caller's stream now;
  // lead() does the reverse. Any thread.
  void follow(void* stream) { space_->order(stream, stream_.get()); }
  void lead(void* stream) { space_->order(stream_.get(), stream); }
  // Orders later work in a queue after an operation. Returns the result of the operation, as far as it is
  // known.
  Failure await(Work& work, Queue queue = Queue::kMain) { return space_->await_work(work, stream(queue)); }
  // Waits until all work has ended.
  void wait() { space_->await_stream(stream(), "the shards"); }
  bool wait_idle(Deadline deadline) noexcept {
    return space_->wait_idle(between_.get(), deadline) && space_->wait_idle(stream_.get(), deadline);
  }

  // --- Functions for elements. Several threads may call them simultaneously for different elements.

  // put() copies elements, or adds them to those in memory.
  void put(const ElementCopy& elements, bool adds) {
    if (adds)
      space_->add(elements, stream());
    else
      space_->copy(elements, stream());
  }
  void zero(std::byte* at, size_t bytes) { space_->zero(at, bytes, stream()); }
  void scale(const Elements& elements, double factor) { space_->scale(elements, factor, stream()); }
  void divide(const Elements& elements, int divisor) { space_->divide(elements, divisor, stream()); }
  double square_sum(std::span<const Elements> shards) {
    return space_->norm(shards, stream(), "the gradients").squares;
  }

 private:
  const std::unique_ptr<Space> space_;
  const std::shared_ptr<void> stream_, between_;  // streams outlive the memory that is freed on them
  UnitMemory units_;
  Memory shards_;
};

}  // namespace dsc
