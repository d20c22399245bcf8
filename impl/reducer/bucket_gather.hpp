// Gathers gradients into their bucket when all of them are ready, in one launch for each type. Until then it
// only notes their addresses and the streams on which they are computed.
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
  double scale = 1;  // of all gradients, except those that were made in their views and are divided instead
  int divisor = 1;   // of gradients that were made in their views
};

class BucketGather {
 public:
  // `stream` is that of the reductions.
  BucketGather(Space& space, Comm& group, void* stream, std::byte* arena,
               std::span<const BucketLayout::Bucket> buckets);

  // Throws STATE for a captured stream if gradients are to be checked.
  void begin(void* stream);

  // Any thread; see GradientStorage.
  void accumulate(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream);
  void take(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream);
  void take_zeros(const GradientSlot& slot);
  void follow(const GradientSlot& slot, void* stream);

  // One thread at a time. A bucket is filled once in an iteration.
  void fill(size_t bucket, const Filling& filling);
  // Notes the operation on a bucket, whose outcome find_nonfinite() needs.
  void set_work(size_t bucket, std::shared_ptr<Work> work) { buckets_[bucket].work = std::move(work); }
  NonFiniteCheck check() const noexcept { return bad_elements_.check(); }
  std::optional<BadBucket> find_nonfinite();
  // An iteration that is not reduced has put work on other streams, for which nothing has waited yet.
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
    std::vector<Taken> taken;  // of this iteration
    std::vector<Mark> before;  // after the work on all streams of its gradients except the latest
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
