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
namespace {

// A failure of the whole group carries this prefix and its ranks in `operation` inside the host engine,
// whose own failures name local ranks.
constexpr std::string_view kOfGroup = "group ";
constexpr size_t kMostRankText = 24;

// Returns a text of the host engine without the name of its own operation, and with ranks of the group in
// place of local ranks.
std::string in_ranks_of_group(std::string text, const std::vector<int32_t>& members) {
  const size_t name = text.find(" of group \"");
  const size_t where = name == std::string::npos ? name : text.find(": ", name);
  if (where != std::string::npos) text.erase(0, where + 2);
  std::string result;
  constexpr std::string_view kRank = "rank ";
  for (size_t at = 0; at < text.size();) {
    size_t digits = 0;
    const bool is_rank = text.compare(at, kRank.size(), kRank) == 0;
    while (is_rank && std::isdigit(static_cast<unsigned char>(text[at + kRank.size() + digits])) != 0)
      ++digits;
    const size_t end = at + kRank.size() + digits;
    if (digits == 0 || digits > 4 || text.compare(end, 5, " (pid") != 0) {
      result += text[at++];
      continue;
    }
    const size_t place = std::stoul(text.substr(at + kRank.size(), digits));
    result += kRank;
    result += std::to_string(place < members.size() ? members[place] : -1);
    at = end;
  }
  return result;
}

}  // namespace

// The transport calls this while it waits for other hosts: a failure on this host ends its operation.
void HierEngine::check_host() const {
  Group& group = local_->group();
  if (!group.revoked()) return;
  const Failure local = in_group(group.first_cause());
  ErrorPlace place = place_of(local);
  place.revoked = true;  // marks the ranks as those of the group
  place.operation[0] = '\0';
  throw Error(local.code, local.text.c_str(), place);
}

// Translates a failure of the host engine from local ranks to ranks of the group. A failure that take()
// passed to the host engine names ranks of the group already.
Failure HierEngine::in_group(Failure local) const {
  const auto& members = layout_.own_members();
  if (local.operation.starts_with(kOfGroup)) {
    local.ranks.clear();
    for (size_t at = kOfGroup.size(); at < local.operation.size();) {
      local.ranks.push_back(std::atoi(&local.operation[at]));
      at = std::min(local.operation.find(' ', at), local.operation.size() - 1) + 1;
    }
  } else {
    for (int32_t& rank : local.ranks)
      if (rank >= 0 && rank < static_cast<int32_t>(members.size())) rank = members[static_cast<size_t>(rank)];
    local.text = in_ranks_of_group(std::move(local.text), members);
    // The rest says what ranks did last in the host engine, which is not an operation that the user called.
    if (local.code == DSC_ERR_TIMEOUT) local.text.resize(std::min(local.text.find("; "), local.text.size()));
  }
  local.rank = local.ranks.empty() ? kNoRank : local.ranks.front();
  return local;
}

// Translates an error to ranks of the group: the transport names hosts, the host engine names local ranks.
Failure HierEngine::cause_of(const Call& call, uint64_t number, const Error& error) const {
  const ErrorPlace& place = error.place();
  Failure cause;
  const bool of_host = place.operation[0] != '\0';  // only the host engine names an operation
  if (of_host && local_->group().revoked()) {
    cause = in_group(local_->group().first_cause());
  } else {
    cause.code = error.code();
    cause.ranks.assign(place.ranks, place.ranks + place.n_ranks);
    cause.text = error.what();
    if (of_host) cause = in_group(std::move(cause));
    for (int32_t& rank : cause.ranks)
      if (!of_host && !place.revoked && rank >= 0 && rank < layout_.hosts()) rank = layout_.leader(rank);
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
  return group.revoked() && group.first_cause().operation.starts_with(kOfGroup);
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
  call_out([&] {
    here.operation = kOfGroup;
    for (const int32_t rank : cause.ranks)
      if (here.operation.size() < kMostRankText)
        here.operation += (here.operation.size() > kOfGroup.size() ? " " : "") + std::to_string(rank);
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
  report = in_group(std::move(report));
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
