// The memory of gradients and buckets (host or device), and the copies between the two.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "comm/comm.hpp"
#include "dtype/dtype.hpp"
#include "reducer/bucket_layout.hpp"

namespace dsc {

// One parameter's part of its bucket.
struct GradientSlot {
  std::byte* view = nullptr;
  size_t count = 0;
  size_t bytes = 0;
  size_t bucket = 0;
  int32_t dtype = 0;
  int32_t gradient_dtype = 0;  // of the memory that callers pass

  size_t gradient_bytes() const noexcept { return count * dtype_bytes(gradient_dtype); }
};

// Memory that receives the sum of a slot in addition to the slot.
struct Delivery {
  const GradientSlot* slot;
  void* to;
};

// Some elements of a slot.
struct GradientPart {
  const GradientSlot* slot;
  size_t at;
  size_t count;
};

// Both are NaN or infinite if an element is.
struct GradientNorm {
  double squares = 0;  // the sum of squares
  double most = 0;     // the largest magnitude
};

// A bucket with elements that are not finite.
struct BadBucket {
  size_t bucket;
  Failure failure;  // failure.index: the first such element of the bucket
};

struct StorageOptions {
  int32_t average = DSC_AVERAGE_PRE;
  std::span<const BucketLayout::Bucket> buckets;
  size_t bytes = 0;  // size of all buckets
};

// One implementation for host memory, one for devices.
class GradientStorage {
 public:
  virtual ~GradientStorage() = default;

  // Returns the memory of all buckets, zeroed at first. The destructor frees it unless keep() was called.
  virtual std::byte* arena() const noexcept = 0;

  // Throws INVALID_ARG if the gradient is in other memory, and UNSUPPORTED for a stream with host memory.
  // Both may be null. Called before anything is changed.
  virtual void check(const void* gradient, const void* stream, const std::string& who) const = 0;

  // Returns the stream of the reductions; null in host memory.
  virtual void* stream() const noexcept = 0;

  virtual void begin(void* stream) = 0;

  // Sets the number of ranks by which PyTorch's rule divides, from the next iteration on.
  virtual void set_divisor(int divisor) noexcept = 0;

  // Any thread, several at once for different slots. `accumulated` says that the slot holds a sum already.
  virtual void accumulate(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream) = 0;
  // Takes a complete gradient: that in the slot if `gradient` is null, else `gradient` and what was
  // accumulated.
  virtual void take(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream) = 0;
  virtual void take_zeros(const GradientSlot& slot) = 0;
  // Notes a stream that works on the gradient of a slot that is not taken yet: its bucket, and the end of the
  // iteration, come behind the work that is there now.
  virtual void follow(const GradientSlot& slot, void* stream) = 0;

  // Brings what was taken into the bucket, for a caller that reduces it itself. Like start(), one thread at
  // a time.
  virtual void gather(size_t bucket) = 0;

  // Starts the reduction of a bucket of which all slots were taken. One thread at a time, in the order of
  // the buckets. After an error it may be called again.
  virtual std::shared_ptr<Work> start(size_t bucket, const Call& call) = 0;

  // Returns how an operation of start() has ended, as far as that is known before its results are
  // delivered.
  virtual Failure outcome(Work& work) = 0;
  // Collective, after all buckets were started: returns the first bucket with NaNs or infinities if these
  // are a failure that the reductions do not report themselves.
  virtual std::optional<BadBucket> find_nonfinite() = 0;
  // Orders deliver() after the work that is on `stream` now, which may still read the memory written there.
  virtual void begin_delivery(void* stream) = 0;
  // Writes results of one bucket, after its work; null if nothing is left to wait for.
  virtual void deliver(Work* work, std::span<const Delivery> deliveries) = 0;
  // Ends the iteration: all its work is complete before work that is put on `stream` later.
  virtual void end(void* stream) = 0;

  // After the iteration, behind the work that is on the stream of end() now. norm() returns when it has the
  // number; what comes on that stream after scale() sees the scaled gradients. `copies` has an entry for each
  // slot: memory that receives the scaled gradient as well, or null.
  virtual GradientNorm norm(std::span<const GradientPart> parts) = 0;
  virtual void scale(std::span<const GradientSlot> slots, std::span<void* const> copies, double factor) = 0;

  // Any thread. Returns false if work other than operations may still use the buckets at the deadline.
  virtual bool wait_idle(Deadline deadline) noexcept = 0;
  virtual void keep() noexcept = 0;
};

// Both are collective; the second one uses the device to which the group is bound.
std::unique_ptr<GradientStorage> make_host_storage(Comm& group, const StorageOptions& options);
std::unique_ptr<GradientStorage> make_device_storage(Comm& group, const StorageOptions& options);

}  // namespace dsc
