// The reducer's side of a join: what it announces, and what it does for ranks that have run out of batches.
#include <utility>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "reducer/reducer.hpp"

namespace dsc {

void Reducer::expect_no_join() const {
  const MutexLock lock(intake_.mutex);
  if (!join_.expired()) fail(DSC_ERR_STATE, "the reducer is under a join that was not finished");
}

void Reducer::set_join(std::weak_ptr<JoinGate> join) {
  const MutexLock lock(intake_.mutex);
  join_ = std::move(join);
}

bool Reducer::counts_marks() const {
  const MutexLock lock(intake_.mutex);
  return intake_.marks.usage().is_counting();
}

// Iterations that are not reduced concern no other rank.
std::optional<Turn> Reducer::announce(JoinStep step) {
  std::shared_ptr<JoinGate> gate;
  {
    const MutexLock lock(intake_.mutex);
    if (step == JoinStep::kIteration && !sync_) return std::nullopt;
    gate = join_.lock();
  }
  return gate ? std::optional<Turn>(gate->announce(*this, step)) : std::nullopt;
}

// This rank contributes zeros to every bucket, and nothing is written to its gradients.
void Reducer::shadow_iteration(const Turn& turn) {
  check_alive();
  expect_finished();
  {
    const MutexLock lock(intake_.mutex);
    intake_.marks.forget_sums();
  }
  begin_iteration(nullptr, turn.divisor, true);
  std::vector<size_t> order;
  {
    const MutexLock lock(intake_.mutex);
    if (!intake_.marks.is_deferred()) {
      intake_.marks.take_missing();
      order = set().layout.plan.indices;
    }
  }
  for (const size_t i : order) intake_.take_without_gradient(i);
  // Gradients that are not finite fail the iteration of the others, and the reducer goes on.
  capture([&] { finish(nullptr); },
          [](const Error& error) {
            if (error.code() != DSC_ERR_NONFINITE) throw Error(error);
          });
}

void sync_buffers(Reducer& reducer, int32_t how) {
  reducer.expect_idle();
  reducer.buffers.require();
  const int size = reducer.group()->size();
  const bool is_mean = how == DSC_BUFFER_SYNC_MEAN;
  const auto turn = reducer.announce(is_mean ? JoinStep::kMeanBuffers : JoinStep::kBroadcastBuffers);
  reducer.buffers.sync(*reducer.group(), how, turn.value_or(Turn{size, size, 0}), true);
}

void shadow_buffers(Reducer& reducer, const Turn& turn, JoinStep step) {
  reducer.expect_idle();
  const int32_t how = step == JoinStep::kMeanBuffers ? DSC_BUFFER_SYNC_MEAN : DSC_BUFFER_SYNC_BROADCAST;
  reducer.buffers.sync(*reducer.group(), how, turn, false);
}

}  // namespace dsc
