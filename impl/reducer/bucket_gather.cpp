#include "reducer/bucket_gather.hpp"

#include <utility>

#include "base/error.hpp"
#include "dtype/dtype.hpp"

namespace dsc {

BucketGather::BucketGather(Space& space, Comm& group, void* stream, std::byte* arena,
                           std::span<const BucketLayout::Bucket> buckets)
    : space_(space), stream_(stream), bad_elements_(space, group, buckets.size()), buckets_(buckets.size()) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].begin = arena + buckets[b].offset;
    buckets_[b].dtype = buckets[b].dtype;
  }
}

// Orders the iteration after the previous one and after the work on `stream`. During a capture there is no
// order after the previous iteration, because captured work cannot wait for work outside the graph.
void BucketGather::begin(void* stream) {
  const bool captured = space_.is_captured(stream);
  bad_elements_.expect(captured);
  if (!captured) space_.order(stream_, stream);
  begun_ = space_.mark(stream);
  space_.follow(stream_, begun_);
  bad_elements_.begin(stream_);
  const MutexLock lock(mutex_);
  for (Bucket& bucket : buckets_) {
    bucket.taken.clear();
    bucket.before.clear();
    bucket.latest.reset();
    bucket.fill = Fill::kNot;
    bucket.work.reset();
  }
}

// Records a mark on the stream that was used last for this bucket. The bucket has to wait for that mark.
void BucketGather::leave_latest(Bucket& bucket) {
  if (!bucket.latest) return;
  bucket.before.push_back(space_.mark(*bucket.latest));
  bucket.latest.reset();
}

// Called before a gradient on `stream` is recorded. If `writes` is set, the gradient is added to the bucket
// on that stream, which must wait for all earlier gradients of the bucket.
void BucketGather::follow(Bucket& bucket, void* stream, bool writes) {
  if (bucket.latest != stream) leave_latest(bucket);
  if (!writes) return;
  space_.follow(stream, begun_);
  for (const Mark& mark : bucket.before) space_.follow(stream, mark);
}

// Called after a gradient on `stream` was recorded. Some handles mean a different stream in every thread,
// such as that of a per-thread default stream. For them, a mark is recorded immediately, because other
// threads cannot refer to that stream.
void BucketGather::has_followed(Bucket& bucket, void* stream) {
  bucket.latest = stream;
  if (space_.is_of_thread(stream)) leave_latest(bucket);
}

// Copies or adds a gradient into the bucket. This runs on the caller's stream, so that later work on it may
// reuse the gradient's memory.
void BucketGather::add(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream) {
  if (accumulated)
    space_.add(slot.copy_of(gradient), stream);
  else
    space_.copy(slot.copy_of(gradient), stream);
}

void BucketGather::accumulate(const GradientSlot& slot, const void* gradient, bool accumulated,
                              void* stream) {
  const MutexLock lock(mutex_);
  Bucket& bucket = buckets_[slot.bucket];
  follow(bucket, stream, true);
  add(slot, gradient, accumulated, stream);
  has_followed(bucket, stream);
}

void BucketGather::take(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream) {
  const MutexLock lock(mutex_);
  const bool adds = gradient && accumulated;
  Bucket& bucket = buckets_[slot.bucket];
  follow(bucket, stream, adds);
  if (adds) add(slot, gradient, true, stream);
  has_followed(bucket, stream);
  const Part part = adds ? Part::kSum : gradient ? Part::kGradient : Part::kView;
  bucket.taken.push_back({&slot, gradient, part});
}

void BucketGather::take_zeros(const GradientSlot& slot) {
  const MutexLock lock(mutex_);
  buckets_[slot.bucket].taken.push_back({&slot, nullptr, Part::kZeros});
}

void BucketGather::follow(const GradientSlot& slot, void* stream) {
  const MutexLock lock(mutex_);
  Bucket& bucket = buckets_[slot.bucket];
  follow(bucket, stream, false);
  has_followed(bucket, stream);
}

void BucketGather::wait_for_gradients(Bucket& bucket) {
  leave_latest(bucket);
  for (const Mark& mark : bucket.before) space_.follow(stream_, mark);
}

// Divides a gradient that was computed in its view, as PyTorch does.
void BucketGather::divide_view(const Bucket& bucket, const GradientSlot& slot, int divisor, void* norm) {
  const TensorPart part{slot.view, slot.count, offset_of(slot)};
  if (norm)
    space_.gather({.parts = {&part, 1},
                   .tensor_dtype = slot.dtype,
                   .block = bucket.begin,
                   .block_dtype = slot.dtype,
                   .norm = norm},
                  stream_);
  space_.divide(slot.elements(), divisor, stream_);
}

// Moves gradients into the bucket. Gradients that are already there are processed only if they must be scaled
// or checked for NaNs and infinities.
void BucketGather::fill_parts(const Bucket& bucket, const Filling& filling, void* norm) {
  std::map<int32_t, std::vector<TensorPart>> parts;  // the gradients to move, by their element type
  for (const auto& [slot, gradient, part] : bucket.taken) {
    if (slot->bytes == 0) continue;
    if (part == Part::kZeros) {
      space_.zero(slot->view, slot->bytes, stream_);
    } else if (part == Part::kView && filling.divisor != 1) {
      divide_view(bucket, *slot, filling.divisor, norm);
    } else if (part == Part::kGradient) {
      parts[slot->gradient_dtype].push_back({const_cast<void*>(gradient), slot->count, offset_of(*slot)});
    } else if (filling.scale != 1 || norm) {
      parts[slot->dtype].push_back({slot->view, slot->count, offset_of(*slot)});
    }
  }
  for (const auto& [dtype, of_type] : parts)
    space_.gather({.parts = of_type,
                   .tensor_dtype = dtype,
                   .block = bucket.begin,
                   .block_dtype = bucket.dtype,
                   .scale = filling.scale,
                   .norm = norm},
                  stream_);
}

void BucketGather::fill(size_t b, const Filling& filling) {
  Bucket& bucket = buckets_[b];
  if (bucket.fill == Fill::kBegun)  // a part of the bucket may already be scaled
    fail(DSC_ERR_BACKEND, "bucket %zu could not be gathered", b);
  if (bucket.fill == Fill::kDone) return;
  const MutexLock lock(mutex_);
  bucket.fill = Fill::kBegun;
  wait_for_gradients(bucket);
  fill_parts(bucket, filling, bad_elements_.norm_of(b, bucket.dtype));
  bucket.fill = Fill::kDone;
}

// Lists the memory to search for a NaN or infinity. If the gradient's own memory was not changed, it is
// searched. If the bucket has fewer bits per element, the conversion may have created an infinity, so the
// bucket is searched instead.
BadElements::Input BucketGather::input_of(size_t b) {
  const Bucket& bucket = buckets_[b];
  BadElements::Input input;
  if (bucket.work) {
    bucket.work->wait_on(stream_, Deadline::never());
    input.sequence = bucket.work->sequence();
  }
  const MutexLock lock(mutex_);
  for (const auto& [slot, gradient, part] : bucket.taken) {
    const bool narrows = dtype_bytes(slot->gradient_dtype) > dtype_bytes(slot->dtype);
    const bool is_apart = part == Part::kGradient && !narrows;
    input.parts.push_back({is_apart ? gradient : slot->view, slot->count, offset_of(*slot),
                           is_apart ? slot->gradient_dtype : slot->dtype});
  }
  return input;
}

std::optional<BadBucket> BucketGather::find_nonfinite() {
  if (!bad_elements_.looks()) return std::nullopt;
  return bad_elements_.find(stream_, [this](size_t b) { return input_of(b); });
}

void BucketGather::end() {
  const MutexLock lock(mutex_);
  for (Bucket& bucket : buckets_)
    if (bucket.fill == Fill::kNot) wait_for_gradients(bucket);
}

}  // namespace dsc
