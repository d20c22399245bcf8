#include "reducer/bucket_intake.hpp"

#include <optional>

#include "base/error.hpp"
#include "reducer/incomplete.hpp"

namespace dsc {

void BucketIntake::take(size_t index, const void* gradient, void* stream,
                        const GradientIntake::Complete& with) {
  if (with.has_frozen) take_frozen_unused();
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
    take(index, gradient.data, gradient.stream, {.has_sum = has_sum, .has_frozen = false});
  for (const size_t i : deferred.unmarked) take_without_gradient(i);
}

void BucketIntake::take_missing() {
  for (const size_t i : gradients_.take_missing()) take_without_gradient(i);
}

void BucketIntake::add_deliveries(size_t bucket) {
  const MutexLock lock(gradients_.mutex);
  for (const size_t i : set().layout.plan.bucket(bucket))
    if (void* const data = gradients_.marks().gradient(i).data; data && set().slots[i].bytes > 0)
      deliveries_.push_back({&set().slots[i], data});
}

Failure BucketIntake::finish(const ParamList& params, void* stream, const std::function<void()>& launch) {
  // Wait first for the buckets that were started. If one has failed, its error says more than the error from
  // starting another bucket.
  const size_t running = runner_.launched();
  std::optional<BadBucket> bad;
  const auto wait = [&](size_t b) {
    Failure failure = runner_.await(b);
    if (failure.code == DSC_OK) return;
    if (failure.code != DSC_ERR_NONFINITE) throw Error(failure);
    if (!bad) bad = {b, failure};
  };
  for (size_t b = 0; b < running; ++b) wait(b);
  launch();
  if (const size_t launched = runner_.launched(); launched != set().size())
    fail(DSC_ERR_INTERNAL, "only %zu of %zu buckets were launched", launched, set().size());
  runner_.complete_hooks();
  for (size_t b = running; b < set().size(); ++b) wait(b);
  GradientStorage& storage = *set().storage;
  if (!bad) bad = storage.find_nonfinite();
  storage.begin_delivery(stream);
  for (size_t b = 0; b < set().size(); ++b) {
    deliveries_.clear();
    if (!bad) add_deliveries(b);
    storage.deliver(runner_.work(b), deliveries_);
  }
  storage.end(stream);
  if (!bad) return {};
  locate_nonfinite(set(), params, bad->bucket, bad->failure);
  return bad->failure;
}

}  // namespace dsc
