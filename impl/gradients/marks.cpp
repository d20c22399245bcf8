#include "gradients/marks.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/overlap.hpp"

namespace dsc {

Marks::Marks(const ParamList& params, bool static_graph)
    : list_(params),
      static_graph_(static_graph),
      params_(params.size()),
      ranges_(params.size()),
      usage_(params.size(), static_graph) {}

void Marks::require_idle() const {
  if (!is_idle()) fail(DSC_ERR_STATE, "an iteration runs; expected this call between finish and begin");
}

void Marks::require_open() const {
  if (is_idle()) fail(DSC_ERR_STATE, "no iteration runs, call begin first");
  if (is_finishing()) fail(DSC_ERR_STATE, "finish is running in another thread");
}

void Marks::expect_finished(int rank) const {
  if (is_finishing()) fail(DSC_ERR_STATE, "finish is running in another thread");
  if (is_idle()) return;
  const auto indices = missing();
  fail(DSC_ERR_STATE,
       "expected to have finished reduction in the prior iteration before starting a new one; %s",
       indices.empty() ? "all parameters are ready, call finish"
                       : ("parameters that did not receive a gradient on rank " + std::to_string(rank) +
                          ": " + listed_labels(list_.labels, indices))
                             .c_str());
}

void Marks::open(bool local) {
  require_idle();
  for (Param& param : params_) {
    param.state = State::kNone;
    param.accumulated = param.accumulated && carries_;
    param.gradient = {};
  }
  local_ = local;
  frozen_taken_ = false;
  usage_.begin();
  ranges_.next_iteration();
  phase_ = Phase::kOpen;
}

void Marks::close() {
  require_open();
  phase_ = Phase::kFinishing;
}

void Marks::reopen() { phase_ = Phase::kOpen; }

void Marks::end() {
  carries_ = local_;
  phase_ = Phase::kIdle;
}

void Marks::begin_sum(size_t index, const void* gradient, size_t bytes) {
  require_open();
  if (usage_.is_frozen_unused(index)) fail_changed(index, "has a gradient");
  expect_unmarked(index);
  if (!gradient && bytes > 0) fail(DSC_ERR_INVALID_ARG, "%s: gradient is NULL", label(index));
  if (overlap(gradient, bytes, buckets_.data(), buckets_.size()))
    fail(DSC_ERR_INVALID_ARG, "%s: gradient lies in the reducer's buckets", label(index));
  params_[index].state = State::kAccumulating;
}

void Marks::end_sum(size_t index) {
  params_[index].accumulated = true;
  params_[index].state = State::kNone;
}

void Marks::cancel_sum(size_t index) { params_[index].state = State::kNone; }

bool Marks::mark(size_t index, const MarkedGradient& gradient) {
  require_open();
  if (usage_.is_frozen_unused(index)) fail_changed(index, "has a gradient");
  expect_unmarked(index);
  expect_gradient(index, gradient);
  params_[index].gradient = gradient;
  if (!usage_.count_mark(index) || is_deferred()) return false;
  become_ready(index, true);
  return true;
}

bool Marks::mark_unused(size_t index) {
  require_open();
  if (static_graph_ && !usage_.is_counting()) {
    if (usage_.is_frozen_unused(index)) return false;
    fail_changed(index, "is unused");
  }
  expect_unmarked(index);
  if (has_sum(index) && !carries_)  // a sum of this iteration counts as a gradient
    fail(DSC_ERR_STATE,
         "%s has an accumulated gradient, so it is not unused; mark it ready with gradient NULL",
         label(index));
  if (is_deferred()) return false;
  become_ready(index, has_sum(index));
  return true;
}

void Marks::become_ready(size_t index, bool used) {
  params_[index].state = State::kReady;
  if (!local_) usage_.note_ready(index, used);
}

void Marks::take_back(size_t index) {
  Param& param = params_[index];
  if (is_ready(index) && !local_) usage_.forget_ready(index);
  if (usage_.marks(index) > 0) usage_.take_back(index);
  param.state = State::kNone;
  if (usage_.marks(index) == 0) param.gradient.data = nullptr;
}

void Marks::note_collected(size_t index) {
  params_[index].accumulated = true;
  params_[index].gradient.data = nullptr;
}

// A parameter that is used several times is marked several times, always with the same memory.
void Marks::expect_gradient(size_t index, const MarkedGradient& gradient) {
  if (usage_.marks(index) > 0) {
    if (gradient.data == params_[index].gradient.data) return;
    fail(DSC_ERR_INVALID_ARG,
         "%s: gradient is not where it was at the previous mark, expected the same memory at every mark of "
         "an iteration",
         label(index));
  }
  if (!gradient.data) return;
  if (overlap(gradient.data, gradient.bytes, buckets_.data(), buckets_.size()))
    fail(DSC_ERR_INVALID_ARG,
         "%s: gradient lies in the reducer's buckets, but not at the parameter's own view", label(index));
  if (const auto other = ranges_.add(index, gradient.data, gradient.bytes))
    fail(DSC_ERR_INVALID_ARG, "%s: gradient overlaps the gradient of %s", label(index), label(*other));
}

void Marks::fail_changed(size_t index, const char* what) const {
  fail(DSC_ERR_STATE,
       "the graph has changed, which is not compatible with static_graph: %s %s, expected %u %s as in the "
       "first iteration",
       label(index), what, usage_.expected_marks(index),
       usage_.expected_marks(index) == 1 ? "mark" : "marks");
}

void Marks::expect_unmarked(size_t index) const {
  require_open();
  if (is_ready(index) && static_graph_ && !usage_.is_counting()) fail_changed(index, "is used once more");
  if (is_ready(index))
    fail(DSC_ERR_STATE,
         "expected to mark a variable ready only once; %s has been marked as ready twice in this iteration",
         label(index));
  if (params_[index].state == State::kAccumulating)
    fail(DSC_ERR_STATE, "%s is being accumulated by another thread", label(index));
}

Marks::Deferred Marks::take_deferred() {
  Deferred deferred;
  if (!is_deferred()) return deferred;
  for (size_t i = 0; i < params_.size(); ++i) {
    const bool is_marked = usage_.marks(i) > 0;
    (is_marked ? deferred.marked : deferred.unmarked).push_back(i);
    become_ready(i, is_marked || has_sum(i));
  }
  return deferred;
}

std::vector<size_t> Marks::take_frozen_unused() {
  std::vector<size_t> indices;
  if (!has_frozen()) return indices;
  frozen_taken_ = true;
  for (size_t i = 0; i < params_.size(); ++i)
    if (usage_.is_frozen_unused(i) && !is_ready(i)) indices.push_back(i);
  for (const size_t i : indices) become_ready(i, has_sum(i));
  return indices;
}

std::vector<size_t> Marks::take_missing(std::span<const size_t> order) {
  std::vector<size_t> indices = order.empty() ? missing() : std::vector<size_t>(order.begin(), order.end());
  std::erase_if(indices, [this](size_t i) { return is_ready(i); });
  for (const size_t i : indices) become_ready(i, has_sum(i));
  return indices;
}

std::vector<size_t> Marks::missing() const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < params_.size(); ++i)
    if (!is_ready(i)) indices.push_back(i);
  return indices;
}

size_t Marks::first_missing(std::span<const size_t> indices) const {
  return *std::ranges::find_if(indices, [&](size_t i) { return !is_ready(i); });
}

}  // namespace dsc
