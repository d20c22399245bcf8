// The memory of gradients and buckets, and the copies between the two. In host memory the marking thread
// moves a gradient at once. On a device the gradient is noted, and moved together with all others of its
// bucket.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "memory/space.hpp"
#include "reducer/bucket_gather.hpp"
#include "reducer/bucket_layout.hpp"
#include "reducer/gradient_slot.hpp"

namespace dsc {

// Memory that receives the sum of a slot in addition to the slot.
struct Delivery {
  const GradientSlot* slot;
  void* to;
};

struct StorageOptions {
  int32_t average = DSC_AVERAGE_PRE;
  std::span<const BucketLayout::Bucket> buckets;
  size_t bytes = 0;  // size of all buckets
};

class GradientStorage {
 public:
  // Collective.
  GradientStorage(Comm& group, bool on_device, const StorageOptions& options);

  Space& space() const noexcept { return *space_; }
  // The memory of all buckets, zeroed at first. The destructor frees it unless keep() was called.
  std::byte* arena() const noexcept { return arena_.get(); }
  // The stream of the reductions; null in host memory.
  void* stream() const noexcept { return stream_.get(); }

  // Throws INVALID_ARG if the gradient is in other memory, and UNSUPPORTED for a stream with host memory.
  // Both may be null. Called before anything is changed.
  void check(const void* gradient, const void* stream, const std::string& who) const;

  // Begins an iteration, ordered after the previous one and after the work that is on the stream now.
  void begin(void* stream);

  // Sets the number of ranks by which PyTorch's rule divides, from the next iteration on.
  void set_divisor(int divisor) noexcept { divisor_ = divisor; }

  // Any thread, several at once for different slots. `accumulated`: the slot already holds a sum.
  void accumulate(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream);
  // Takes a complete gradient. If `gradient` is null it is the slot's content; otherwise it is `gradient`
  // plus what was accumulated.
  void take(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream);
  void take_zeros(const GradientSlot& slot);
  // Notes a stream that works on the gradient of a slot that is not taken yet: its bucket, and the end of the
  // iteration, are ordered after the work that is on the stream now.
  void follow(const GradientSlot& slot, void* stream);

  // Gathers the gradients that were taken into the bucket, for a caller that reduces it itself. Like start(),
  // one thread at a time.
  void gather(size_t bucket);
  // Starts the reduction of a bucket of which all slots were taken. One thread at a time, in the order of the
  // buckets. After an error it may be called again.
  std::shared_ptr<Work> start(size_t bucket, const Call& call);

  // Returns how an operation of start() has ended, as far as that is known before its results are delivered.
  Failure outcome(Work& work) const;
  // Collective, after all buckets were started: returns the first bucket with NaNs or infinities, if these
  // are a failure that the reductions do not report themselves.
  std::optional<BadBucket> find_nonfinite();
  // Orders deliver() after the work that is on `stream` now, which may still read the memory to be written.
  void begin_delivery(void* stream) { space_->order(stream, stream_.get()); }
  // Writes results of one bucket, after its work; null if nothing is left to wait for.
  void deliver(Work* work, std::span<const Delivery> deliveries);
  // Ends the iteration: later work on `stream` is ordered after all its work.
  void end(void* stream);

  // After the iteration, ordered after the work that is on the stream of end() now. norm() returns when it
  // has the number; later work on that stream sees the gradients that scale() has scaled. `copies` has an
  // entry for each slot: memory that also receives the scaled gradient, or null.
  Norm norm(std::span<const Elements> parts);
  void scale(std::span<const GradientSlot> slots, std::span<void* const> copies, double factor);

  // Any thread. Returns false if work other than operations may still use the buckets at the deadline.
  bool wait_idle(Deadline deadline) noexcept { return space_->wait_idle(stream_.get(), deadline); }
  void keep() noexcept;

 private:
  bool divides() const noexcept { return is_pytorch_ && divisor_ != 1; }
  void copy_slots(std::span<const Delivery> deliveries);

  Comm& group_;
  const std::unique_ptr<Space> space_;
  const bool is_pytorch_;  // multiplies a copied gradient by 1 / divisor, divides one in its view
  int divisor_;
  const std::shared_ptr<void> stream_;
  Memory arena_;
  std::unique_ptr<BucketGather> gather_;  // null if gradients are moved at once
  void* end_stream_ = nullptr;            // of the latest end()
};

}  // namespace dsc
