// Reducer::finish(), which ends an iteration.
#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "gradients/abort_unless_done.hpp"
#include "reducer/incomplete.hpp"
#include "reducer/reducer.hpp"

namespace dsc {
namespace {

Failure await_launched(BucketRunner& runner, Comm& group, size_t launched) {
  for (size_t b = 0; b < launched; ++b)
    if (Failure failure = runner.await_end(b); failure.code != DSC_OK) return failure;
  return group.revoked() ? group.failure() : Failure{};
}

}  // namespace

void Reducer::finish(void* stream) {
  current_set()->storage->check(nullptr, stream, {});
  if (!gradients_.is_open()) check_alive();
  gradients_.stop(*group_);
  runner_.timeline->finishing();
  if (gradients_.is_local()) {  // the iteration only adds to the sums of this rank
    intake_.take_deferred();
    storage().end(stream);
    const MutexLock lock(gradients_.mutex);
    runner_.timeline->finished();
    return gradients_.end();
  }
  AbortUnlessDone guard([this] {
    reported_.store(true);
    abort();
  });
  intake_.take_deferred();
  intake_.take_frozen_unused();
  if (options_.find_unused == 1 && options_.static_graph == 0) intake_.take_missing();
  if (const auto absent = gradients_.missing(); !absent.empty()) {
    launch_unless_revoked();
    const size_t launched = runner_.launched();
    Failure failure = await_launched(runner_, *group_, launched);
    if (failure.code == DSC_OK)
      failure =
          end_alike(*group_, launched, label(gradients_.first_missing(set().layout.plan.bucket(launched))));
    if (failure.code == DSC_OK) {
      end_iteration(false);
      guard.done();
    }
    fail_incomplete(params_, group_->rank(), absent,
                    failure.code == DSC_OK ? reduced_text(runner_.hook() ? 0 : launched)
                                           : "the reducer is revoked: " + failure.text.str(),
                    failure);
  }
  const Failure nonfinite = intake_.finish(params_, stream, [this] { launch_ready(false); });
  if (sparse_.any()) sparse_.reduce(*group_, divisor_);
  agree_after();
  end_iteration(nonfinite.code == DSC_OK);
  guard.done();
  if (nonfinite.code != DSC_OK) throw Error(nonfinite);
}

// Starts all complete buckets. Ignores a revoked group, because finish() reports that together with the
// missing gradients.
void Reducer::launch_unless_revoked() {
  if (group_->revoked()) return;
  capture([&] { launch_ready(false); },
          [&](const Error& error) {
            if (!group_->revoked()) throw Error(error);
          });
}

// Collective. Agrees on unused parameters and on new buckets. All ranks call this at the same point, even if
// gradients are not finite. The lock is not held meanwhile, because close() in another thread must be able to
// interrupt it.
void Reducer::agree_after() {
  bool was_counting = false;
  bool pinned = false;
  std::vector<int32_t> used;
  std::vector<size_t> order;
  {
    const MutexLock lock(gradients_.mutex);
    const Usage& usage = gradients_.marks().usage();
    was_counting = usage.is_counting();
    gradients_.end_usage();
    pinned = sets_.pinned();
    used = usage.used();
    order = usage.ready_order();
  }
  if (was_counting || (options_.find_unused == 1 && options_.static_graph == 0)) {
    std::vector<size_t> unused = find_unused(*group_, std::move(used));
    const MutexLock lock(gradients_.mutex);
    unused_ = std::move(unused);
  }
  if (was_counting) return;
  auto proposed = sets_.propose(*group_, params_, order, pinned);
  const MutexLock lock(gradients_.mutex);
  sets_.set_next(std::move(proposed));
}

// Reads the times of the iteration only if it is sampled, because converting the time stamps takes time. For
// other iterations, this is done when a report is requested.
void Reducer::end_iteration(bool good) {
  runner_.end();
  const MutexLock lock(gradients_.mutex);
  runner_.timeline->finished();
  if (PhaseSampler::is_sampled(iterations_)) phases_.add(runner_.timeline->read());
  ++iterations_;
  has_results_ = good;
  gradients_.end();
}

}  // namespace dsc
