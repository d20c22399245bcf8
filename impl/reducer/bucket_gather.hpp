// Gathers all gradients of a bucket as soon as the last one is ready, in one launch per element type. Until
// then, only their addresses and the streams that compute them are recorded.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.hpp"
#include "memory/space.hpp"
#include "reducer/bad_elements.hpp"
#include "reducer/bucket_layout.hpp"
#include "reducer/gradient_slot.hpp"

namespace dsc {

// How a bucket is filled.
struct Filling {
  double scale = 1;  // factor for all gradients, except those that were computed in their views
  int divisor = 1;   // divisor for the gradients that were computed in their views
};

class BucketGather {
 public:
  // `stream` is the one on which buckets are reduced.
  BucketGather(Space& space, Comm& group, void* stream, std::byte* arena,
               std::span<const BucketLayout::Bucket> buckets);

  // Throws STATE for a captured stream if gradients are to be checked.
  void begin(void* stream);

  // May be called from any thread; GradientStorage describes these functions.
  void accumulate(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream);
  void take(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream);
  void take_zeros(const GradientSlot& slot);
  void follow(const GradientSlot& slot, void* stream);

  // Only one thread at a time may call this. A bucket is filled once per iteration.
  void fill(size_t bucket, const Filling& filling);
  // Records the reduction of a bucket, because find_nonfinite() needs its result.
  void set_work(size_t bucket, std::shared_ptr<Work> work) { buckets_[bucket].work = std::move(work); }
  NonFiniteCheck check() const noexcept { return bad_elements_.check(); }
  std::optional<BadBucket> find_nonfinite();
  // Ends an iteration. If it was not reduced, the reducer's stream has to wait here for the gradients on
  // other streams.
  void end();

  size_t offset_of(const GradientSlot& slot) const {
    return static_cast<size_t>(slot.view - buckets_[slot.bucket].begin) / dtype_bytes(slot.dtype);
  }
  void keep() noexcept { bad_elements_.keep(); }

 private:
  enum class Fill : uint8_t { kNot, kBegun, kDone };
  enum class Part : uint8_t { kGradient, kView, kSum, kZeros };
  struct Taken {
    const GradientSlot* slot;
    const void* gradient;  // used with kGradient
    Part part;
  };
  struct Bucket {
    std::byte* begin = nullptr;
    int32_t dtype = 0;
    std::vector<Taken> taken;  // gradients of this iteration
    // Marks after the gradients on all streams except the latest one.
    std::vector<Mark> before;
    std::optional<void*> latest;
    Fill fill = Fill::kNot;  // like `work`, used only by the thread that starts the bucket
    std::shared_ptr<Work> work;
  };

  void leave_latest(Bucket& bucket) DSC_REQUIRES(mutex_);
  void follow(Bucket& bucket, void* stream, bool writes) DSC_REQUIRES(mutex_);
  void has_followed(Bucket& bucket, void* stream) DSC_REQUIRES(mutex_);
  void add(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream);
  void wait_for_gradients(Bucket& bucket) DSC_REQUIRES(mutex_);
  void fill_parts(const Bucket& bucket, const Filling& filling, void* norm);
  void divide_view(const Bucket& bucket, const GradientSlot& slot, int divisor, void* norm);
  BadElements::Input input_of(size_t bucket);

  Space& space_;
  void* const stream_;
  BadElements bad_elements_;
  Mark begun_;
  Mutex mutex_;
  std::vector<Bucket> buckets_;  // mutex_ guards taken, before and latest
};

}  // namespace dsc
