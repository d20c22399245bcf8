// Failures between hosts. The transport, the host engine or another rank detects them, and all ranks of the
// group receive the same cause.
#include <algorithm>
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/wait.hpp"
#include "comm/describe.hpp"
#include "control/group.hpp"
#include "control/job_event.hpp"
#include "engine_hier/hier_engine.hpp"
#include "engine_host/operation.hpp"

namespace dsc {
namespace {

constexpr int kAnswerMs = 500;        // how long an operation waits for answers
constexpr int kOthersAnswerMs = 900;  // how long the others wait for the one rank that asks
constexpr int kOthersAskedMs = 2500;  // the same in query_hosts()
constexpr size_t kMostAsked = 8;

}  // namespace

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
  if (transport_) transport_->abort(Error(cause.code, cause.text.c_str(), place));
  call_out([&] { TransportGroup::abort_all(other_wires()); });
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
    const auto quiet_ns = world_->quiet_ns(layout_.global_ranks()[static_cast<size_t>(rank)]);
    if (!quiet_ns) continue;
    report.code = DSC_ERR_PEER_STALLED;
    report.group = id();
    report.elapsed_ns = std::max(report.elapsed_ns, *quiet_ns);
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

// ---- late ranks and status queries

void HierEngine::note_latest(const Call& call, uint64_t number) noexcept {
  MutexLock lock(mutex_);
  latest_.fields = fields_of(call);
  std::copy(std::begin(call.note), std::end(call.note), latest_.note);
  latest_.number = number;
  latest_.running = true;
}

void HierEngine::note_done() noexcept {
  MutexLock lock(mutex_);
  latest_.running = false;
}

// Returns a text such as "all_reduce(sum, f32, 1000) number 811, running".
std::string HierEngine::describe_latest() const {
  MutexLock lock(mutex_);
  const bool is_own =
      comes_before_numbers(static_cast<OpKind>(latest_.fields.kind));  // not called by the user
  if (latest_.number == 0 || (is_own && !latest_.running)) return "nothing";
  return dsc::describe(latest_.fields, latest_.note) + " number " + std::to_string(latest_.number) +
         (latest_.running ? ", running" : ", done");
}

std::vector<int32_t> HierEngine::members_of(const std::vector<bool>& hosts) const {
  std::vector<int32_t> ranks;
  for (size_t host = 0; host < hosts.size(); ++host) {
    if (!hosts[host]) continue;
    const auto& members = layout_.members(static_cast<int>(host));
    ranks.insert(ranks.end(), members.begin(), members.end());
  }
  return ranks;
}

void HierEngine::on_status_query(const QueryHandler& answering) {
  MutexLock lock(mutex_);
  query_handler_ = answering;
}

std::string HierEngine::answer(const std::string& question) const {
  QueryHandler answering;
  {
    MutexLock lock(mutex_);
    answering = query_handler_;
  }
  return question.empty() || !answering ? describe_latest() : answering(question);
}

std::vector<Answer> HierEngine::ask(const std::vector<int32_t>& ranks, const std::string& question,
                                    Deadline deadline) {
  std::vector<int32_t> of_world;
  of_world.reserve(ranks.size());
  for (const int32_t rank : ranks) of_world.push_back(layout_.global_ranks()[static_cast<size_t>(rank)]);
  auto texts = world_->ask(id(), of_world, question, deadline);
  std::vector<Answer> answers;
  for (size_t i = 0; i < ranks.size(); ++i) answers.push_back({ranks[i], std::move(texts[i])});
  return answers;
}

std::vector<Answer> HierEngine::query_hosts(uint64_t number, const std::string& question) {
  if (world_->quiet_ns(0)) return {};
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  if (!world_->claim("device", id(), number, deadline)) {
    await_failure(kOthersAskedMs);
    return {};
  }
  std::vector<int32_t> leaders;
  for (int host = 0; host < layout_.hosts() && leaders.size() < kMostAskedRanks; ++host)
    if (host != layout_.own_host()) leaders.push_back(layout_.leader(host));
  return ask(leaders, question, deadline);
}

std::vector<Answer> HierEngine::query_rank(int32_t rank, const std::string& question) {
  if (world_->quiet_ns(0)) return {};
  return ask({rank}, question, Deadline::after_ms(kAnswerMs));
}

// Asks at most kMostAsked ranks; returns a text such as "rank 3: barrier() number 4, done; rank 4: no
// answer".
std::string HierEngine::latest_of(std::vector<int32_t> ranks, Deadline deadline) {
  ranks.resize(std::min(ranks.size(), kMostAsked));
  std::string text;
  for (const Answer& answer : ask(ranks, "", deadline))
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(answer.rank) + ": " + answer.text;
  return text;
}

// Waits until the group has failed: the rank that asks for all publishes the failure with the answers.
void HierEngine::await_failure(int patience_ms) const {
  const Deadline deadline = Deadline::after_ms(patience_ms);
  while (!revoked_.load() && !deadline.passed()) sleep_until(Deadline::after_ms(5));
}

// Logs which ranks are late, once per operation. Of all ranks that wait in a collective only one asks and
// logs; none does while rank 0, which serves the store, is unresponsive.
void HierEngine::report_late(Waiting& waiting, const std::vector<int32_t>& ranks) {
  const int64_t elapsed = now_ns() - waiting.since_ns;
  if (waiting.since_ns == 0 || waiting.reported || ranks.empty() || elapsed < kLateReportNs) return;
  if (world_->quiet_ns(0)) return;
  waiting.reported = true;
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  const bool message = waiting.kind == OpKind::kSend || waiting.kind == OpKind::kRecv;
  if (!message && !world_->claim("late", id(), waiting.number, deadline)) return;
  log(DSC_LOG_WARN, "%s number %" PRIu64 " of group \"%s\" has waited %.1f s for %s; %s",
      op_kind_name(waiting.kind), waiting.number, name().c_str(), static_cast<double>(elapsed) / kNsPerSecond,
      list_ranks(ranks).c_str(), latest_of(ranks, deadline).c_str());
}

// Adds to a time-out what the missing ranks did last. In a collective one rank asks and publishes the
// answers; the others wait for them.
void HierEngine::explain_time_out(const Call& call, uint64_t number, Failure& cause) {
  const bool message = call.kind == OpKind::kSend || call.kind == OpKind::kRecv;
  if (cause.code != DSC_ERR_TIMEOUT || cause.ranks.empty() || world_->quiet_ns(0)) return;
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  if (message || world_->claim("timeout", id(), number, deadline)) {
    cause.text += "; " + latest_of(cause.ranks, deadline);
    return;
  }
  await_failure(kOthersAnswerMs);
}

Failure HierEngine::fail_operation(const Call& call, uint64_t number, const Error& error) noexcept {
  Failure cause;
  cause.code = error.code();
  call_out([&] {
    cause = cause_of(call, number, error);
    if (!revoked_.load()) explain_time_out(call, number, cause);
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
