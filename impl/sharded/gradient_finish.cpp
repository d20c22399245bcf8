// GradientShards::finish(), which ends an iteration.
#include <algorithm>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/gather.hpp"
#include "gradients/abort_unless_done.hpp"
#include "gradients/incomplete.hpp"
#include "sharded/gradient_shards.hpp"
#include "sharded/unit_label.hpp"

namespace dsc {
namespace {

constexpr uint64_t kNonfiniteTag = 0x5a;

}  // namespace

void GradientShards::finish(void* stream) {
  memory_.check_stream(stream);
  if (!intake_.is_open()) groups_.check_alive();
  intake_.stop(groups_.all());
  AbortUnlessDone guard([this] { groups_.abort(); });
  const std::vector<size_t> absent = intake_.missing();
  if (!groups_.revoked()) launch_ready();
  size_t launched = 0;
  {
    const MutexLock lock(launch_mutex_);
    launched = reductions_.launched();
    if (absent.empty()) reductions_.wait_for_all();
  }
  if (!absent.empty()) {
    const Failure failure = end_incomplete(launched);
    end_iteration(false);
    if (failure.code == DSC_OK) guard.done();
    fail_incomplete(list_, groups_.all().rank(), absent,
                    failure.code == DSC_OK
                        ? std::to_string(launched) + " of " + std::to_string(units_.size()) +
                              " units were reduced; the contents of the shards are undefined"
                        : "the sharded parameters are revoked: " + failure.text.str(),
                    failure);
  }
  if (launched < units_.size()) groups_.check_alive();
  const Failure nonfinite = nonfinite_cause();
  end_iteration(nonfinite.code == DSC_OK);
  memory_.lead(stream);
  guard.done();
  if (nonfinite.code != DSC_OK) throw Error(nonfinite);
}

// Called instead of launching the next unit. It informs the other ranks that this rank launches only
// `launched` units. If the other ranks also launched only this many, the iteration ends in the same way on
// all ranks.
Failure GradientShards::end_incomplete(size_t launched) {
  Failure failure;
  capture(
      [&] {
        groups_.check_alive();
        const MutexLock lock(launch_mutex_);
        reductions_.wait_for_all();
        const auto indices = intake_.missing();
        const size_t unit = *reductions_.next();
        const auto first = std::ranges::find_if(indices, [&](size_t i) { return params_[i].unit == unit; });
        const Call call = incomplete_call(launched, list_.labels[*first]);
        for (Comm* group : {&groups_.shards(), groups_.replicas()})
          if (group) groups_.run(*group, [&] { group->run(call); });
      },
      [&](const Error& error) { failure = error.failure(); });
  return failure;
}

// Returns the failure of this iteration if a gradient was not finite; it names the unit. With hybrid
// sharding, copies of the model are reduced separately, so all ranks exchange their results.
Failure GradientShards::nonfinite_cause() {
  Failure failure = [&] {
    const MutexLock lock(launch_mutex_);
    return reductions_.nonfinite();
  }();
  if (!groups_.replicas() || groups_.all().nonfinite()->check() != NonFiniteCheck::kFail) return failure;
  groups_.run(groups_.all(), [&] {
    auto all = gather_all(groups_.all(), OpKind::kVerify, kNonfiniteTag, failure);
    const auto first = std::ranges::find_if(all, [](const Failure& one) { return one.code != DSC_OK; });
    if (first == all.end()) return;
    first->bound();
    failure = *first;
  });
  return failure;
}

void GradientShards::end_iteration(bool has_sums) {
  {
    const MutexLock lock(launch_mutex_);
    reductions_.end();
    for (size_t u = 0; u < units_.size(); ++u)
      if (options_.keeps_full ? !has_sums : memory_.units().is_open(u)) memory_.units().close(u);
  }
  const MutexLock lock(intake_.mutex);
  has_sums_ = has_sums;
  intake_.end();
}

}  // namespace dsc
