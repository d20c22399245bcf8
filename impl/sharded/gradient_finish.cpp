// The end of an iteration of gradients.
#include <time.h>

#include <algorithm>
#include <cstdio>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/gather.hpp"
#include "sharded/gradient_shards.hpp"
#include "sharded/unit_label.hpp"

namespace dsc {
namespace {

constexpr uint64_t kNonfiniteTag = 0x5a;
constexpr timespec kPollPeriod{0, 100'000};

// Fails all groups unless done() was called, because after an error the contents of the shards are unknown
// and other ranks must not use theirs.
class AbortUnlessDone {
 public:
  explicit AbortUnlessDone(ShardGroups& groups) noexcept : groups_(groups) {}
  ~AbortUnlessDone() {
    if (!done_) groups_.abort();
  }
  AbortUnlessDone(const AbortUnlessDone&) = delete;
  AbortUnlessDone& operator=(const AbortUnlessDone&) = delete;

  void done() noexcept { done_ = true; }

 private:
  ShardGroups& groups_;
  bool done_ = false;
};

}  // namespace

void GradientShards::finish(void* stream) {
  memory_.check_stream(stream);
  stop_marking();
  AbortUnlessDone guard(groups_);
  const std::vector<size_t> absent = [&] {
    const MutexLock lock(mutex_);
    return missing();
  }();
  if (!groups_.revoked()) launch_ready();
  size_t launched = 0;
  {
    const MutexLock lock(launch_mutex_);
    launched = launched_;
    if (absent.empty()) advance(launched_);
  }
  if (!absent.empty()) {
    const Failure failure = end_incomplete(launched);
    end_iteration(false);
    if (failure.code == DSC_OK) guard.done();
    fail_incomplete(absent, launched, failure);
  }
  if (launched < units_.size()) groups_.check_alive();
  const Failure nonfinite = nonfinite_cause();
  end_iteration(nonfinite.code == DSC_OK);
  memory_.lead(stream);
  guard.done();
  if (nonfinite.code != DSC_OK) throw Error(nonfinite);
}

// Refuses further marks and waits for those that are running.
void GradientShards::stop_marking() {
  {
    const MutexLock lock(mutex_);
    if (phase_ != Phase::kOpen) groups_.check_alive();
    require_open();
    phase_ = Phase::kFinishing;
  }
  const int timeout_ms = groups_.all().timeout_ms();
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  while (marking_.load(std::memory_order_acquire) != 0) {
    if (deadline.passed()) {
      const MutexLock lock(mutex_);
      phase_ = Phase::kOpen;
      fail(DSC_ERR_TIMEOUT, "another thread of rank %d is still marking a parameter after %d ms",
           groups_.all().rank(), timeout_ms);
    }
    nanosleep(&kPollPeriod, nullptr);
  }
}

std::vector<size_t> GradientShards::missing() const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < params_.size(); ++i)
    if (params_[i].mark != Mark::kReady) indices.push_back(i);
  return indices;
}

// Tells the other ranks, in place of the next unit, that this rank starts only `launched` units. If they have
// started no more either, the iteration ends alike on all ranks.
Failure GradientShards::end_incomplete(size_t launched) {
  Failure failure;
  capture(
      [&] {
        groups_.check_alive();
        const MutexLock lock(launch_mutex_);
        advance(launched);
        const auto indices = [&] {
          const MutexLock marks(mutex_);
          return missing();
        }();
        const size_t unit = unit_at(launched);
        const auto first = std::ranges::find_if(indices, [&](size_t i) { return params_[i].unit == unit; });
        Call call;
        call.kind = OpKind::kReducerFinish;
        call.tag = launched;
        std::snprintf(call.note, sizeof call.note, "no gradient: %s", labels_[*first].c_str());
        for (Comm* group : {&groups_.shards(), groups_.replicas()})
          if (group) groups_.run(*group, [&] { group->run(call); });
      },
      [&](const Error& error) { failure = error.failure(); });
  return failure;
}

// Reports the missing gradients first, as this rank's own fault, unless the failure is worse than a
// difference between ranks.
void GradientShards::fail_incomplete(std::span<const size_t> absent, size_t launched,
                                     const Failure& failure) {
  const bool own_fault = failure.code == DSC_OK || failure.code == DSC_ERR_MISMATCH;
  const std::string outcome = failure.code == DSC_OK
                                  ? std::to_string(launched) + " of " + std::to_string(units_.size()) +
                                        " units were reduced; the shards hold nothing of use"
                                  : "the sharded parameters are revoked: " + failure.text.str();
  fail(own_fault ? DSC_ERR_STATE : failure.code,
       "expected to have finished reduction, but %zu of %zu parameters did not receive a gradient on rank "
       "%d: %s; %s",
       absent.size(), params_.size(), groups_.all().rank(), listed_labels(labels_, absent).c_str(),
       outcome.c_str());
}

// Returns the failure of this iteration if a gradient was not finite, with the name of its unit. The copies
// of hybrid sharding reduce separately, so they exchange what they have found.
Failure GradientShards::nonfinite_cause() {
  Failure failure;
  {
    const MutexLock lock(launch_mutex_);
    if (nonfinite_) {
      failure = groups_.translated(groups_.shards(), *nonfinite_);
      failure.text = "a gradient of " + unit_labels_[*nonfinite_unit_] + " on rank " +
                     std::to_string(failure.rank()) + " is a NaN or infinite; the shards hold nothing of use";
    }
  }
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
    for (size_t u = 0; u < units_.size(); ++u) {
      units_[u].works.clear();
      if (!units_[u].live && (has_sums || !options_.keeps_full)) continue;
      units_[u].live = false;
      memory_.units().close(u);
    }
    launched_ = replicated_ = collected_ = 0;
    nonfinite_.reset();
    nonfinite_unit_.reset();
  }
  const MutexLock lock(mutex_);
  has_sums_ = has_sums;
  phase_ = Phase::kIdle;
}

}  // namespace dsc
