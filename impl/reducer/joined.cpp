// The reducer's side of a join: its announcements, and its steps on ranks that have run out of batches.
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

// Iterations that are not reduced concern no other rank.
std::optional<JoinParticipants> Reducer::announce(JoinStep step) {
  std::shared_ptr<JoinGate> gate;
  {
    const MutexLock lock(gradients_.mutex);
    if (step == JoinStep::kIteration && !sync_) return std::nullopt;
    gate = join_.lock();
  }
  return gate ? std::optional<JoinParticipants>(gate->announce(*this, step)) : std::nullopt;
}

// This rank contributes zeros to every bucket, and nothing is written to its gradients.
void Reducer::shadow_iteration(const JoinParticipants& participants) {
  check_alive();
  gradients_.expect_finished(group_->rank());
  {
    const MutexLock lock(gradients_.mutex);
    gradients_.forget_sums();
  }
  begin_iteration(nullptr, participants.divisor, true);
  if (!counts_marks())  // in the order of the buckets, which this rank may propose for the next iterations
    for (const size_t i : gradients_.take_missing(set().layout.plan.indices))
      intake_.take_without_gradient(i);
  // Gradients that are not finite fail the iteration of the others, and the reducer continues.
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
