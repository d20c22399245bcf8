// The reducer's side of a join: what it announces, and what it does for ranks that have run out of batches.
#include "base/error.hpp"
#include "reducer/reducer.hpp"

namespace dsc {

void Reducer::expect_no_join() const {
  const MutexLock lock(mutex_);
  if (!join_.expired()) fail(DSC_ERR_STATE, "the reducer is under another join, which was not finished");
}

void Reducer::set_join(std::weak_ptr<JoinGate> join) {
  const MutexLock lock(mutex_);
  join_ = std::move(join);
}

bool Reducer::counts_marks() const {
  const MutexLock lock(mutex_);
  return usage_.is_counting();
}

// Iterations that are not reduced concern no other rank.
std::optional<Turn> Reducer::announce(JoinStep step) {
  std::shared_ptr<JoinGate> gate;
  {
    const MutexLock lock(mutex_);
    if (step == JoinStep::kIteration && !sync_) return std::nullopt;
    gate = join_.lock();
  }
  if (!gate) return std::nullopt;
  return gate->announce(*this, step);
}

// This rank contributes zeros to every bucket, and nothing is written to its gradients.
void Reducer::shadow_iteration(const Turn& turn) {
  check_alive();
  expect_finished();
  {
    const MutexLock lock(mutex_);
    sync_ = true;
    carries_ = false;
  }
  begin_iteration(nullptr, turn.divisor);
  std::vector<size_t> order;
  {
    const MutexLock lock(mutex_);
    frozen_marked_ = true;
    if (!is_deferred()) order = set_->layout.plan.indices;
    for (const size_t i : order) states_[i].mark = Mark::kReady;
  }
  for (const size_t i : order) mark_without_gradient(i);
  finish(nullptr);
}

void Reducer::set_buffers(std::span<const Tensor> buffers) { buffers_.set(*group_, buffers); }

void Reducer::sync_buffers(int32_t how) {
  expect_idle();
  const bool is_mean = how == DSC_BUFFER_SYNC_MEAN;
  const auto turn = announce(is_mean ? JoinStep::kMeanBuffers : JoinStep::kBroadcastBuffers);
  buffers_.sync(*group_, how, turn.value_or(Turn{group_->size(), group_->size(), 0}), true);
}

void Reducer::shadow_buffers(const Turn& turn, JoinStep step) {
  expect_idle();
  buffers_.sync(*group_, step == JoinStep::kMeanBuffers ? DSC_BUFFER_SYNC_MEAN : DSC_BUFFER_SYNC_BROADCAST, turn,
                false);
}

}  // namespace dsc
