// Failures between hosts. The transport, the host engine or another rank detects them. All ranks of the group
// report the same cause.
#include <algorithm>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/describe.hpp"
#include "control/group.hpp"
#include "engine_hier/hier_engine.hpp"
#include "engine_host/operation.hpp"

namespace dsc {

// The transport calls this while it waits for other hosts, so that a failure on this host ends its operation.
void HierEngine::check_host() const {
  if (local_->group().revoked()) throw Error(local_->group().first_cause());
}

// Errors of the transport contain host numbers. These are replaced by the first rank of each host. A failure
// that another host sent may contain any rank, so it stays as it is.
Failure HierEngine::in_group(Failure failure) const noexcept {
  for (int32_t& rank : failure.ranks)
    if (!failure.has_user_ranks && rank >= 0 && rank < layout_.hosts()) rank = layout_.leader(rank);
  failure.has_user_ranks = true;
  failure.ranks.bound_to(size());
  return failure;
}

// Returns the cause, and names `call` as the failed operation if that is certain. Another rank of this host
// may have found a time-out or mismatch in one of its own operations. Or this rank may have found it in
// another operation, because messages and collectives run on separate threads. In these cases no operation is
// named. Steps on the host belong to collectives.
Failure HierEngine::cause_of(const Call& call, uint64_t sequence, const Error& error) const {
  const Group& host = local_->group();
  Failure cause = in_group(host.revoked() ? host.first_cause() : error.failure());
  const std::string_view step = cause.operation;
  const bool is_of_message = step == op_kind_name(OpKind::kSend) || step == op_kind_name(OpKind::kRecv);
  const bool is_known = !host.revoked() || (host.failed_here() && is_of_message == is_message(call.kind)) ||
                        (cause.code != DSC_ERR_TIMEOUT && cause.code != DSC_ERR_MISMATCH);
  cause.set_group(id(), name());
  cause.sequence = is_known ? sequence : 0;
  cause.operation = is_known ? op_kind_name(call.kind) : "";
  cause.revoked = true;
  cause.is_published = false;
  return cause;
}

// Returns the cause if a rank of this host has adopted one from the store, which means that all hosts know
// it.
std::optional<Failure> HierEngine::known_group_failure() const noexcept {
  const Group& group = local_->group();
  if (!group.revoked()) return std::nullopt;
  Failure cause = group.first_cause();
  if (!cause.is_published) return std::nullopt;
  cause.set_group(id(), name());
  cause.is_published = false;
  return cause;
}

// Returns the ranks that a rank of this host has found stopped for too long. The other hosts learn of these
// ranks before they learn that this group has failed, because other groups with these ranks also fail.
std::vector<RankGone> HierEngine::stalled_here() const {
  std::vector<RankGone> stalled;
  const Group& host = local_->group();
  if (!host.revoked()) return stalled;
  const Failure cause = host.first_cause();
  if (cause.code != DSC_ERR_PEER_STALLED || cause.is_published) return stalled;
  for (size_t i = 0; i < layout_.own_members().size(); ++i) {
    const int32_t rank = layout_.own_members()[i];
    if (std::ranges::find(cause.ranks, rank) != cause.ranks.end())
      stalled.push_back({layout_.global_ranks()[static_cast<size_t>(rank)], DSC_ERR_PEER_STALLED,
                         host.process_of(static_cast<int>(i)).pid, cause.elapsed_ns / kNsPerMs});
  }
  return stalled;
}

// Publishes the cause. All ranks keep the cause that was published first. A rank of this host may already
// have learned that cause, and the store may no longer exist.
void HierEngine::revoke(const Failure& cause) noexcept {
  if (revoked_.load()) return;
  Failure first = cause;
  call_out([&] { first = world_->publish(id(), cause, stalled_here()); });
  const auto published = known_group_failure();
  if (first.code != cause.code || (published && published->ranks != first.ranks)) return learn_of(first);
  adopt_failure(first);
}

// Once this host knows a published cause, it keeps that cause, even if this rank learns something else later.
// For example, the process that published the cause may have ended since.
void HierEngine::learn_of(const Failure& cause) noexcept {
  Failure known = cause;
  if (const auto published = known_group_failure();
      published && (published->code != known.code || published->ranks != known.ranks))
    known = *published;
  if (!is_group_fatal(known.code)) known.code = DSC_ERR_REVOKED;
  if (known.code == DSC_ERR_PEER_STALLED && local_->group().revoked())
    if (const Failure here = local_->group().first_cause();
        here.code == known.code && here.ranks == known.ranks)
      known.text = here.text;  // this host knows more about its own ranks than it published
  adopt_failure(known);
}

// Keeps the cause, passes it to the ranks of this host, and ends all connections and channels. The cause may
// come from another group, because Sharded and pipelines pass causes on.
void HierEngine::adopt_failure(const Failure& cause) noexcept {
  Failure kept = cause;
  kept.set_group(id(), name());
  kept.ranks.bound_to(size());
  kept.revoked = true;
  kept.has_user_ranks = true;
  {
    MutexLock lock(mutex_);
    if (revoked_.load()) return;
    cause_ = kept;
    revoked_.store(true);
  }
  world_->note_failure();
  Failure here = kept;
  here.is_published = true;
  local_->revoke(here);
  links_.fail(kept);
  state.fail_channels(kept);  // happens on all ranks, because each of them adopts the cause
}

Failure HierEngine::failure() const {
  if (revoked_.load()) {
    MutexLock lock(mutex_);
    return cause_;
  }
  Failure report = local_->failure();
  if (report.code == DSC_OK) return unresponsive_hosts();
  report.set_group(id(), name());
  report.sequence = 0;  // the number was that of a step on this host, not of a user's call
  report.operation = {};
  return report;
}

// Reports the first ranks of unresponsive hosts with PEER_STALLED. This is information only; nothing has
// failed.
Failure HierEngine::unresponsive_hosts() const noexcept {
  Failure report;
  for (int rank = 0; rank < size(); ++rank) {
    const auto unresponsive_ns = world_->unresponsive_ns(layout_.global_ranks()[static_cast<size_t>(rank)]);
    if (!unresponsive_ns) continue;
    report.code = DSC_ERR_PEER_STALLED;
    report.set_group(id(), name());
    report.elapsed_ns = std::max(report.elapsed_ns, *unresponsive_ns);
    report.ranks.push_back(rank);
  }
  if (report.ranks.empty()) return report;
  report.text += report.ranks.size() == 1 ? "rank" : "ranks";
  for (const int32_t& rank : report.ranks)
    report.text.add("%s %d", &rank == report.ranks.begin() ? "" : ",", rank);
  report.text.add(": nothing was heard for %.1f s, but nothing has failed",
                  static_cast<double>(report.elapsed_ns) / kNsPerSecond);
  return report;
}

// Publishes the failure of this host. Otherwise other hosts would learn only that this rank leaves, and would
// report its leaving as the cause.
void HierEngine::publish_failure_of_host() noexcept {
  if (revoked_.load() || !local_->group().revoked()) return;
  if (const auto published = known_group_failure()) return learn_of(*published);
  Failure cause = in_group(local_->group().first_cause());
  cause.set_group(id(), name());
  cause.sequence = 0;  // the number was that of a step on this host, not of a user's call
  cause.operation = {};
  revoke(cause);
}

Failure HierEngine::fail_operation(const Call& call, uint64_t sequence, const Error& error,
                                   const ArrivalMark& arrival) noexcept {
  Failure cause = cause_of(call, sequence, error);
  if (!revoked_.load() && !known_group_failure())
    call_out([&] { status_.explain_time_out(call, sequence, arrival.is_set(), cause); });
  if (const auto published = known_group_failure())
    learn_of(*published);  // this rank's own error is a consequence of it
  else
    revoke(cause);
  state.note_reported();
  MutexLock lock(mutex_);
  return cause_;
}

}  // namespace dsc
