// The reducer's side of a join: it announces steps to ranks that have run out of batches, and performs these
// steps on such ranks.
#include <utility>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "reducer/reducer.hpp"

namespace dsc {

void Reducer::expect_no_join() const {
  const MutexLock lock(gradients_.mutex);
  if (!join_.expired()) fail(DSC_ERR_STATE, "the reducer belongs to a join that is not finished");
}

void Reducer::set_join(std::weak_ptr<JoinGate> join) {
  const MutexLock lock(gradients_.mutex);
  join_ = std::move(join);
}

bool Reducer::counts_marks() const {
  const MutexLock lock(gradients_.mutex);
  return gradients_.marks().usage().is_counting();
}

// Announces the next step, if the reducer belongs to a join. Iterations that are not reduced are not
// announced, because other ranks take no part in them.
std::optional<JoinParticipants> Reducer::announce(JoinStep step) {
  std::shared_ptr<JoinGate> gate;
  {
    const MutexLock lock(gradients_.mutex);
    if (step == JoinStep::kIteration && !sync_) return std::nullopt;
    gate = join_.lock();
  }
  return gate ? std::optional<JoinParticipants>(gate->announce(*this, step)) : std::nullopt;
}

// Runs an iteration on a rank without batches. It contributes zeros to every bucket, and its gradients are
// not written.
void Reducer::shadow_iteration(const JoinParticipants& participants) {
  check_alive();
  gradients_.expect_finished(group_->rank());
  {
    const MutexLock lock(gradients_.mutex);
    gradients_.forget_sums();
  }
  begin_iteration(nullptr, participants.divisor, true);
  // Take parameters in bucket order, because this rank may propose that order for the next iterations.
  if (!counts_marks())
    for (const size_t i : gradients_.take_missing(set().layout.plan.indices))
      intake_.take_without_gradient(i);
  // A gradient that is not finite fails the iteration on the other ranks, which report it. The reducer
  // continues.
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
  const auto participants = reducer.announce(is_mean ? JoinStep::kMeanBuffers : JoinStep::kBroadcastBuffers);
  reducer.buffers.sync(*reducer.group(), how, participants.value_or(JoinParticipants{size, size, 0}), true);
}

void shadow_buffers(Reducer& reducer, const JoinParticipants& participants, JoinStep step) {
  reducer.expect_idle();
  const int32_t how = step == JoinStep::kMeanBuffers ? DSC_BUFFER_SYNC_MEAN : DSC_BUFFER_SYNC_BROADCAST;
  reducer.buffers.sync(*reducer.group(), how, participants, false);
}

}  // namespace dsc
