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
  Failure cause = group.first_cause();
  cause.operation = {};
  throw Error(cause);
}

// The transport names hosts; their first ranks stand for them.
Failure HierEngine::in_group(Failure failure) const noexcept {
  for (int32_t& rank : failure.ranks)
    if (!failure.names_whole && rank >= 0 && rank < layout_.hosts()) rank = layout_.leader(rank);
  failure.names_whole = true;
  return failure;
}

Failure HierEngine::cause_of(const Call& call, uint64_t number, const Error& error) const {
  const bool is_of_host_engine = !error.failure().operation.empty();  // only that engine names an operation
  const bool has_cause = is_of_host_engine && local_->group().revoked();
  Failure cause = in_group(has_cause ? local_->group().first_cause() : error.failure());
  cause.group = id();
  cause.sequence = number;
  cause.operation = op_kind_name(call.kind);
  cause.revoked = true;
  cause.is_of_whole = false;
  return cause;
}

// Returns the cause that a rank of this host has taken, which means that it has been published to all hosts.
std::optional<Failure> HierEngine::told_here() const noexcept {
  const Group& group = local_->group();
  if (!group.revoked()) return std::nullopt;
  Failure cause = group.first_cause();
  if (!cause.is_of_whole) return std::nullopt;
  cause.group = id();
  cause.is_of_whole = false;
  return cause;
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

// Once this host was told of a cause, that one counts, whatever this rank hears later: the process that has
// published it, for example, may have ended since.
void HierEngine::learn_of(const Failure& cause) noexcept {
  Failure known = cause;
  if (const auto told = told_here(); told && told->code != cause.code) known = *told;
  if (!is_group_fatal(known.code)) known.code = DSC_ERR_REVOKED;
  take(known);
}

// Keeps the cause, passes it to the ranks of this host, and ends all connections and channels.
void HierEngine::take(const Failure& cause) noexcept {
  Failure kept = cause;
  kept.revoked = true;
  kept.names_whole = true;
  {
    MutexLock lock(mutex_);
    if (revoked_.load()) return;
    cause_ = kept;
    revoked_.store(true);
  }
  Failure here = kept;
  here.is_of_whole = true;
  here.operation = {};
  local_->revoke(here);
  links_.fail(kept);
  state.fail_channels(kept);  // on all ranks, as each of them takes the cause
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
  report.text.add("%s: nothing was heard for %.1f s, but nothing has failed",
                  list_ranks(report.ranks).c_str(), static_cast<double>(report.elapsed_ns) / kNsPerSecond);
  return report;
}

// Other hosts would otherwise learn only that this rank leaves, as if that were the cause.
void HierEngine::publish_failure_of_host() noexcept {
  if (revoked_.load() || !local_->group().revoked()) return;
  if (const auto told = told_here()) return learn_of(*told);
  Failure cause = local_->group().first_cause();
  cause.group = id();
  revoke(cause);
}

Failure HierEngine::fail_operation(const Call& call, uint64_t number, const Error& error) noexcept {
  Failure cause = cause_of(call, number, error);
  if (!revoked_.load() && !told_here()) call_out([&] { status_.explain_time_out(call, number, cause); });
  if (auto told = told_here()) {  // this rank's own error is a consequence of it
    told->sequence = number;
    told->operation = cause.operation;
    learn_of(*told);
  } else {
    revoke(cause);
  }
  state.note_reported();
  MutexLock lock(mutex_);
  return cause_;
}

}  // namespace dsc
