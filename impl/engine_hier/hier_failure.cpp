// Failures between hosts. The transport, the host engine or another rank detects them, and all ranks of the
// group receive the same cause.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/describe.hpp"
#include "control/group.hpp"
#include "engine_hier/hier_engine.hpp"
#include "engine_host/operation.hpp"

namespace dsc {
// The transport calls this while it waits for other hosts: a failure on this host ends its operation.
void HierEngine::check_host() const {
  Group& group = local_->group();
  if (!group.revoked()) return;
  const Failure local = group.first_cause();
  ErrorPlace place = place_of(local);
  place.revoked = true;  // marks the ranks as those of the group
  place.operation[0] = '\0';
  throw Error(local.code, local.text.c_str(), place);
}

// Returns the cause of an error. The transport names hosts, which become their first ranks; the host engine
// names ranks of the group.
Failure HierEngine::cause_of(const Call& call, uint64_t number, const Error& error) const {
  const ErrorPlace& place = error.place();
  const bool is_of_host_engine = place.operation[0] != '\0';  // only that engine names an operation
  Failure cause;
  if (is_of_host_engine && local_->group().revoked()) {
    cause = local_->group().first_cause();
  } else {
    cause.code = error.code();
    cause.ranks.assign(place.ranks, place.ranks + place.n_ranks);
    cause.text = error.what();
    for (int32_t& rank : cause.ranks)
      if (!is_of_host_engine && !place.revoked && rank >= 0 && rank < layout_.hosts())
        rank = layout_.leader(rank);
    cause.rank = cause.ranks.empty() ? kNoRank : cause.ranks.front();
  }
  cause.group = id();
  cause.sequence = number;
  cause.operation = op_kind_name(call.kind);
  cause.revoked = true;
  return cause;
}

// True if take() ran on a rank of this host, which means that the failure has been published to all hosts.
bool HierEngine::was_told_here() const {
  const Group& group = local_->group();
  return group.revoked() && group.first_cause().is_of_whole;
}

// Publishes the cause. All ranks keep the one that was published first.
void HierEngine::revoke(const Failure& cause) noexcept {
  if (revoked_.load()) return;
  std::optional<Failure> first;
  call_out([&] { first = world_->publish(id(), cause); });
  if (!first) return take(cause);
  if (first->code == cause.code) return take(*first);
  learn_of(*first);
}

void HierEngine::learn_of(const Failure& cause) noexcept {
  call_out([&] {
    Failure known = cause;
    if (!is_group_fatal(known.code)) known.code = DSC_ERR_REVOKED;
    take(known);
  });
}

// Keeps the cause, passes it to the ranks of this host, and ends all connections and channels.
void HierEngine::take(const Failure& cause) noexcept {
  Failure kept;
  kept.code = cause.code;
  call_out([&] { kept = cause; });  // without memory only the code is kept
  kept.revoked = true;
  {
    MutexLock lock(mutex_);
    if (revoked_.load()) return;
    cause_ = std::move(kept);
    revoked_.store(true);
  }
  Failure here;
  here.code = cause.code;
  here.is_of_whole = true;
  call_out([&] {
    here.ranks = cause.ranks;
    here.text = cause.text;
  });
  local_->revoke(here);
  ErrorPlace place = place_of(cause);
  place.revoked = true;  // marks the ranks as those of the group
  links_.fail(Error(cause.code, cause.text.c_str(), place));
  state.fail_channels(cause);  // on all ranks, as each of them takes the cause
}

Failure HierEngine::failure() const {
  if (revoked_.load()) {
    MutexLock lock(mutex_);
    return cause_;
  }
  Failure report = local_->failure();
  if (report.code == DSC_OK) return silence();
  report.group = id();
  return report;
}

// Reports the first ranks of unresponsive hosts with PEER_STALLED. This is information; nothing has failed.
Failure HierEngine::silence() const {
  Failure report;
  for (int rank = 0; rank < size(); ++rank) {
    const auto unresponsive_ns = world_->unresponsive_ns(layout_.global_ranks()[static_cast<size_t>(rank)]);
    if (!unresponsive_ns) continue;
    report.code = DSC_ERR_PEER_STALLED;
    report.group = id();
    report.elapsed_ns = std::max(report.elapsed_ns, *unresponsive_ns);
    report.ranks.push_back(rank);
  }
  if (report.ranks.empty()) return report;
  report.rank = report.ranks.front();
  char words[64];
  std::snprintf(words, sizeof words, ": nothing was heard for %.1f s, but nothing has failed",
                static_cast<double>(report.elapsed_ns) / kNsPerSecond);
  report.text = list_ranks(report.ranks) + words;
  return report;
}

Failure HierEngine::fail_operation(const Call& call, uint64_t number, const Error& error) noexcept {
  Failure cause;
  cause.code = error.code();
  call_out([&] {
    cause = cause_of(call, number, error);
    if (!revoked_.load()) status_.explain_time_out(call, number, cause);
  });
  if (was_told_here())
    take(cause);
  else
    revoke(cause);
  state.note_reported();
  MutexLock lock(mutex_);
  return cause_;
}

}  // namespace dsc
