// The memory of all buckets, and the copies of gradients into and out of them. In host memory, the marking
// thread copies a gradient immediately. On a device, a gradient is only recorded, and copied together with
// all others of its bucket.
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

// User-provided memory that receives the result of a slot. The slot also keeps the result.
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
  // The constructor is collective.
  GradientStorage(Comm& group, bool on_device, const StorageOptions& options);

  Space& space() const noexcept { return *space_; }
  // Returns the memory of all buckets, which is initially zero. The destructor frees it unless keep() was
  // called.
  std::byte* arena() const noexcept { return arena_.get(); }
  // Returns the stream of the reductions; null in host memory.
  void* stream() const noexcept { return stream_.get(); }

  // Called before anything is changed. Throws INVALID_ARG if the gradient is in the wrong kind of memory, and
  // UNSUPPORTED if a stream is passed with host memory. Both pointers may be null.
  void check(const void* gradient, const void* stream, const std::string& who) const;

  // Begins an iteration. It is ordered after the previous iteration and after all work that is on the stream
  // now.
  void begin(void* stream);

  // Sets the number of ranks by which PyTorch's rule divides, from the next iteration on.
  void set_divisor(int divisor) noexcept { divisor_ = divisor; }

  // May be called from several threads simultaneously, for different slots. Copies a gradient into its slot
  // or, if `accumulated` is set, adds it to the sum in the slot.
  void accumulate(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream);
  // Takes a complete gradient. If `gradient` is null, the slot already contains it. Otherwise it is
  // `gradient`, to which the slot's sum is added if `accumulated` is set.
  void take(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream);
  void take_zeros(const GradientSlot& slot);
  // Records a stream that computes a gradient that is not taken yet. The slot's bucket and the end of the
  // iteration are ordered after the work that is on the stream now.
  void follow(const GradientSlot& slot, void* stream);

  // Gathers the gradients into the bucket, for a hook that reduces it. As with start(), only one thread at a
  // time may call this.
  void gather(size_t bucket);
  // Starts the reduction of a bucket whose gradients were all taken. Only one thread at a time may call this,
  // in the order of the buckets. After an error it may be called again.
  std::shared_ptr<Work> start(size_t bucket, const Call& call);

  // Returns the result of an operation that start() returned, as far as the host knows it before results are
  // delivered.
  Failure outcome(Work& work) const;
  // Collective, called after all buckets were started. Returns the first bucket with NaNs or infinities, if
  // these are a failure that the reductions do not report themselves.
  std::optional<BadBucket> find_nonfinite();
  // Orders deliver() after the work that is on `stream` now, because that work may still read the memory to
  // which results are written.
  void begin_delivery(void* stream) { space_->order(stream, stream_.get()); }
  // Writes the results of one bucket after its operation `work` has ended; `work` is null if there is nothing
  // to wait for.
  void deliver(Work* work, std::span<const Delivery> deliveries);
  // Ends the iteration. Later work on `stream` is ordered after all work of the iteration.
  void end(void* stream);

  // Called after the iteration. Both functions are ordered after the work that is now on the stream of end().
  // norm() waits for the result. Later work on that stream sees gradients that scale() has scaled. `copies`
  // has an entry per slot: memory that also receives the scaled gradient, or null.
  Norm norm(std::span<const Elements> parts);
  void scale(std::span<const GradientSlot> slots, std::span<void* const> copies, double factor);

  // May be called from any thread. Returns false if work other than operations may still use the buckets at
  // the deadline.
  bool wait_idle(Deadline deadline) noexcept { return space_->wait_idle(stream_.get(), deadline); }
  void keep() noexcept;

 private:
  bool divides() const noexcept { return is_pytorch_ && divisor_ != 1; }
  void copy_slots(std::span<const Delivery> deliveries);

  Comm& group_;
  const std::unique_ptr<Space> space_;
  // Follows PyTorch: multiplies a copied gradient by 1 / divisor, and divides a gradient in its view.
  const bool is_pytorch_;
  int divisor_;
  const std::shared_ptr<void> stream_;
  Memory arena_;
  std::unique_ptr<BucketGather> gather_;  // null in host memory, where gradients are copied immediately
  void* end_stream_ = nullptr;            // stream of the latest end()
};

}  // namespace dsc
