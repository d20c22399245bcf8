#include "reducer/intake.hpp"

#include <tuple>
#include <vector>

namespace dsc {

void GradientIntake::begin(bool local) {
  local_ = local;
  marks.open(local);
}

bool GradientIntake::has_sum(size_t index) {
  const MutexLock lock(mutex);
  return marks.has_sum(index);
}

void GradientIntake::take(size_t index, const void* gradient, void* stream, const Complete& with) {
  for (const size_t i : with.frozen_unused) take_without_gradient(i);
  const bool sum = with.has_sum;
  const GradientSlot& slot = set().slots[index];
  if (!is_local()) {
    run(index, [&] { set().storage->take(slot, gradient, sum, stream); });
    return become_ready(index, true);
  }
  run(index, [&] {
    if (gradient) {
      set().storage->accumulate(slot, gradient, sum, stream);
    } else {
      set().storage->follow(slot, stream);
    }
  });
  const MutexLock lock(mutex);
  marks.note_collected(index);
}

void GradientIntake::take_without_gradient(size_t index) {
  if (is_local()) return;
  const bool used = has_sum(index);
  const GradientSlot& slot = set().slots[index];
  run(index, [&] {
    if (used) {
      set().storage->take(slot, nullptr, true, nullptr);
    } else {
      set().storage->take_zeros(slot);
    }
  });
  become_ready(index, used);
}

void GradientIntake::become_ready(size_t index, bool used) {
  {
    const MutexLock lock(mutex);
    marks.usage().note_ready(index, used);
  }
  runner_.timeline->ready(index);
  if (runner_.count_ready(set().slots[index].bucket)) complete_();
}

void GradientIntake::take_frozen_unused() {
  const std::vector<size_t> indices = [&] {
    const MutexLock lock(mutex);
    return marks.take_frozen_unused();
  }();
  for (const size_t i : indices) take_without_gradient(i);
}

void GradientIntake::take_deferred() {
  Marks::Deferred deferred;
  std::vector<std::tuple<void*, void*, bool>> gradients;  // with their streams, and whether they have a sum
  {
    const MutexLock lock(mutex);
    deferred = marks.take_deferred();
    for (const size_t i : deferred.marked)
      gradients.emplace_back(marks.gradient(i), marks.stream(i), marks.has_sum(i));
  }
  for (size_t k = 0; k < deferred.marked.size(); ++k) {
    const auto [gradient, stream, has_sum] = gradients[k];
    take(deferred.marked[k], gradient, stream, {.has_sum = has_sum, .frozen_unused = {}});
  }
  for (const size_t i : deferred.unmarked) take_without_gradient(i);
}

void GradientIntake::add_deliveries(size_t bucket, std::vector<Delivery>& deliveries) {
  const MutexLock lock(mutex);
  for (const size_t i : set().layout.plan.bucket(bucket))
    if (marks.gradient(i) && set().slots[i].bytes > 0)
      deliveries.push_back({&set().slots[i], marks.gradient(i)});
}

void GradientIntake::take_missing() {
  const std::vector<size_t> rest = [&] {
    const MutexLock lock(mutex);
    return marks.take_missing();
  }();
  for (const size_t i : rest) take_without_gradient(i);
}

std::vector<size_t> GradientIntake::missing() {
  const MutexLock lock(mutex);
  return marks.missing();
}

size_t GradientIntake::first_missing(size_t bucket) {
  const MutexLock lock(mutex);
  return marks.first_missing(set().layout.plan.bucket(bucket));
}

}  // namespace dsc
