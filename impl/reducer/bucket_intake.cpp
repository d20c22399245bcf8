#include "reducer/bucket_intake.hpp"

namespace dsc {

void BucketIntake::take(size_t index, const void* gradient, void* stream,
                        const GradientIntake::Complete& with) {
  for (const size_t i : with.frozen_unused) take_without_gradient(i);
  const bool sum = with.has_sum;
  const GradientSlot& slot = set().slots[index];
  if (!gradients_.is_local()) {
    gradients_.run(index, [&] { set().storage->take(slot, gradient, sum, stream); });
    return become_ready(index);
  }
  gradients_.run(index, [&] {
    if (gradient) {
      set().storage->accumulate(slot, gradient, sum, stream);
    } else {
      set().storage->follow(slot, stream);
    }
  });
  gradients_.note_collected(index);
}

void BucketIntake::take_without_gradient(size_t index) {
  if (gradients_.is_local()) return;
  const GradientSlot& slot = set().slots[index];
  const bool used = gradients_.has_sum(index);
  gradients_.run(index, [&] {
    if (used) {
      set().storage->take(slot, nullptr, true, nullptr);
    } else {
      set().storage->take_zeros(slot);
    }
  });
  become_ready(index);
}

void BucketIntake::become_ready(size_t index) {
  runner_.timeline->ready(index);
  if (runner_.count_ready(set().slots[index].bucket)) complete_();
}

void BucketIntake::take_frozen_unused() {
  for (const size_t i : gradients_.take_frozen_unused()) take_without_gradient(i);
}

void BucketIntake::take_deferred() {
  const GradientIntake::Deferred deferred = gradients_.take_deferred();
  for (const auto& [index, gradient, has_sum] : deferred.marked)
    take(index, gradient.data, gradient.stream, {.has_sum = has_sum, .frozen_unused = {}});
  for (const size_t i : deferred.unmarked) take_without_gradient(i);
}

void BucketIntake::take_missing() {
  for (const size_t i : gradients_.take_missing()) take_without_gradient(i);
}

void BucketIntake::add_deliveries(size_t bucket, std::vector<Delivery>& deliveries) {
  const MutexLock lock(gradients_.mutex);
  for (const size_t i : set().layout.plan.bucket(bucket))
    if (void* const data = gradients_.marks().gradient(i).data; data && set().slots[i].bytes > 0)
      deliveries.push_back({&set().slots[i], data});
}

}  // namespace dsc
