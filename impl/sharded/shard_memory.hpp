// The memory of full buffers and shards, with the streams on which work on them is put.
//
// On a device all work is put on one stream, so that released memory may be used again at once: its next use
// comes later on that stream. Only wait() and square_sum() wait for the stream. No function waits without a
// deadline.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "memory/space.hpp"
#include "sharded/unit_memory.hpp"

namespace dsc {

class ShardMemory {
 public:
  // Operations that follow other operations, and whose results are needed last, have a separate stream, so
  // that gradients do not wait for them.
  enum class Queue : uint8_t { kMain, kBetweenOperations };

  // Collective in `group`. With 0 bytes of shards, the shards are parts of the full buffers.
  ShardMemory(Comm& group, bool on_device, const FlatOffsets& full, size_t shard_bytes,
              const UnitOptions& options);

  UnitMemory& units() noexcept { return units_; }
  const UnitMemory& units() const noexcept { return units_; }
  // Zeros at first.
  std::byte* shards() const noexcept { return shards_.get(); }
  // Returns memory for work of this object only.
  Memory scratch(size_t bytes) { return space_->take(bytes, stream()); }
  // Never frees the memory, because operations may still use it.
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
  // Order later work on this object's stream after the work that is on the caller's stream now, or the
  // reverse. Any thread.
  void follow(void* stream) { space_->order(stream, stream_.get()); }
  void lead(void* stream) { space_->order(stream_.get(), stream); }
  // Orders later work in this queue after an operation. Returns how the operation has ended, as far as that
  // is known.
  Failure await(Work& work, Queue queue = Queue::kMain) { return space_->await_work(work, stream(queue)); }
  // Waits until all work has ended.
  void wait() { space_->await_stream(stream(), "the shards"); }
  bool wait_idle(Deadline deadline) noexcept {
    return space_->wait_idle(between_.get(), deadline) && space_->wait_idle(stream_.get(), deadline);
  }

  // --- Elements. Any thread, several at once for different elements.
  // Copies elements, or adds them to those in memory.
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
  const std::shared_ptr<void> stream_, between_;  // they outlive the memory that is freed in their order
  UnitMemory units_;
  Memory shards_;
};

}  // namespace dsc
