// Where gradients and their buckets lie, and how they get from one into the other.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "comm/comm.hpp"
#include "reducer/bucket_layout.hpp"

namespace dsc {

// One parameter's part of its bucket.
struct Slot {
  std::byte* view = nullptr;
  size_t count = 0;
  size_t bytes = 0;
  size_t bucket = 0;
  int32_t dtype = 0;
};

// Where the sum of a slot goes, besides the slot.
struct Delivery {
  const Slot* slot;
  void* to;
};

// Elements that are not finite, by their bucket.
struct BadBucket {
  size_t bucket;
  Failure failure;  // index: the first one, in elements of the bucket
};

struct PlaceOptions {
  int32_t average = DSC_AVERAGE_PRE;
  std::span<const BucketLayout::Bucket> buckets;
  size_t bytes = 0;  // of all buckets
};

class GradientPlace {
 public:
  virtual ~GradientPlace() = default;

  // All buckets, zeroed at first. They go with this, unless keep() was called.
  virtual std::byte* arena() const noexcept = 0;

  // Throws INVALID_ARG unless the memory is of this place, UNSUPPORTED for a stream where there are none.
  // Either may be null. Before anything happens.
  virtual void check(const void* gradient, const void* stream, const std::string& who) const = 0;

  virtual void begin(void* stream) = 0;

  // Any thread, several at once for different slots. `accumulated`: the slot holds a sum already.
  virtual void accumulate(const Slot& slot, const void* gradient, bool accumulated, void* stream) = 0;
  // A gradient is complete: the slot's own, or `gradient` and what was accumulated.
  virtual void take(const Slot& slot, const void* gradient, bool accumulated, void* stream) = 0;
  virtual void take_zeros(const Slot& slot) = 0;

  // One thread at a time, in the order of the buckets: all slots of this one were taken. If it fails, it may
  // be called again.
  virtual std::shared_ptr<Work> start(size_t bucket, const Call& call) = 0;

  // Iterations may fail after they were finished.
  virtual bool goes_on_alone() const noexcept = 0;

  // How an operation of start() has ended, as far as that is known before its results are delivered.
  virtual Failure outcome(Work& work) = 0;
  // What start() could not say yet. Collective, after all buckets were started.
  virtual std::optional<BadBucket> find_nonfinite() = 0;
  // What is on `stream` by now may still read what deliver() writes to.
  virtual void begin_delivery(void* stream) = 0;
  virtual void deliver(Work& work, std::span<const Delivery> deliveries) = 0;
  // All is done, or will be before anything that comes on `stream` later.
  virtual void end(void* stream) = 0;

  // Any thread. False when something besides operations may still use the buckets after the deadline.
  virtual bool settle(Deadline deadline) noexcept = 0;
  virtual void keep() noexcept = 0;
};

// Collective.
std::unique_ptr<GradientPlace> make_host_place(Comm& group, const PlaceOptions& options);
// On the device that the group is bound to.
std::unique_ptr<GradientPlace> make_device_place(Comm& group, const PlaceOptions& options);

}  // namespace dsc
