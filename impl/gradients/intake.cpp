#include "gradients/intake.hpp"

#include "base/error.hpp"

namespace dsc {

void GradientIntake::begin(bool local) {
  local_ = local;
  marks_.open(local);
}

void GradientIntake::stop(const Comm& group) {
  {
    const MutexLock lock(mutex);
    marks_.close();
  }
  if (marking_.wait_until_none(Deadline::after_ms(group.timeout_ms()))) return;
  const MutexLock lock(mutex);
  marks_.reopen();
  fail(DSC_ERR_TIMEOUT, "another thread of rank %d is still marking a parameter after %d ms", group.rank(),
       group.timeout_ms());
}

void GradientIntake::expect_finished(int rank) const {
  const MutexLock lock(mutex);
  marks_.expect_finished(rank);
}

bool GradientIntake::is_idle() const {
  const MutexLock lock(mutex);
  return marks_.is_idle();
}

bool GradientIntake::is_open() const {
  const MutexLock lock(mutex);
  return marks_.is_open();
}

bool GradientIntake::is_finishing() const {
  const MutexLock lock(mutex);
  return marks_.is_finishing();
}

bool GradientIntake::has_sum(size_t index) const {
  const MutexLock lock(mutex);
  return marks_.has_sum(index);
}

std::vector<size_t> GradientIntake::missing() const {
  const MutexLock lock(mutex);
  return marks_.missing();
}

size_t GradientIntake::first_missing(std::span<const size_t> indices) const {
  const MutexLock lock(mutex);
  return marks_.first_missing(indices);
}

bool GradientIntake::accept(size_t index, const MarkedGradient& gradient) {
  const bool is_complete = marks_.mark(index, gradient);
  marking_.enter();
  return is_complete;
}

bool GradientIntake::accept_sum(size_t index, const void* gradient, size_t bytes) {
  marks_.begin_sum(index, gradient, bytes);
  marking_.enter();
  return marks_.has_sum(index);
}

void GradientIntake::end_sum(size_t index) {
  const MutexLock lock(mutex);
  marks_.end_sum(index);
}

bool GradientIntake::accept_unused(size_t index) {
  if (!marks_.mark_unused(index)) return false;
  marking_.enter();
  return true;
}

void GradientIntake::note_collected(size_t index) {
  const MutexLock lock(mutex);
  marks_.note_collected(index);
}

void GradientIntake::take_back(size_t index) {
  const MutexLock lock(mutex);
  marks_.take_back(index);
}

void GradientIntake::cancel_sum(size_t index) {
  const MutexLock lock(mutex);
  marks_.cancel_sum(index);
}

std::vector<size_t> GradientIntake::take_frozen_unused() {
  const MutexLock lock(mutex);
  return marks_.take_frozen_unused();
}

std::vector<size_t> GradientIntake::take_missing() {
  const MutexLock lock(mutex);
  return marks_.take_missing();
}

GradientIntake::Deferred GradientIntake::take_deferred() {
  Deferred result;
  const MutexLock lock(mutex);
  auto deferred = marks_.take_deferred();
  for (const size_t i : deferred.marked) result.marked.push_back({i, marks_.gradient(i), marks_.has_sum(i)});
  result.unmarked = std::move(deferred.unmarked);
  return result;
}

}  // namespace dsc
