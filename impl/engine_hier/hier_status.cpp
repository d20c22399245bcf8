#include "engine_hier/hier_status.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include <unistd.h>

#include "base/joined.hpp"
#include "base/log.hpp"
#include "base/wait.hpp"
#include "comm/describe.hpp"
#include "control/job_event.hpp"
#include "engine_host/operation.hpp"

namespace dsc {
namespace {

constexpr int kAnswerMs = 500;        // how long an operation waits for answers
constexpr int kOthersAnswerMs = 900;  // how long the other ranks wait for the rank that asks on behalf of all
constexpr int kOthersAskedMs = 2500;  // how long the other ranks wait in query_hosts()
constexpr size_t kMostAsked = 8;
// Asks a leader which ranks of its host it is waiting for in the collective whose sequence number follows.
// Other questions begin with the number of an operation's kind, which is not a letter.
constexpr std::string_view kMissingQuestion = "missing ";

}  // namespace

void HierStatus::note_begin(const Call& call, uint64_t sequence) noexcept {
  MutexLock lock(mutex_);
  latest_.fields = fields_of(call);
  std::copy(std::begin(call.note), std::end(call.note), latest_.note);
  latest_.sequence = sequence;
  latest_.running = true;
}

void HierStatus::note_end(const Call& call, uint64_t sequence) noexcept {
  MutexLock lock(mutex_);
  if (latest_.sequence == sequence && latest_.fields.kind == fields_of(call).kind) latest_.running = false;
}

// Returns a text such as "last collective 811 (all_reduce(sum, f32, 1000)), running (pid 4711)".
std::string HierStatus::describe_latest() const {
  MutexLock lock(mutex_);
  const bool is_own = has_no_sequence(static_cast<OpKind>(latest_.fields.kind));  // not called by the user
  const std::string pid = " (pid " + std::to_string(::getpid()) + ")";
  if (latest_.sequence == 0 || (is_own && !latest_.running)) return "no call before" + pid;
  const std::string call = describe(latest_.fields, latest_.note),
                    sequence = std::to_string(latest_.sequence);
  const bool is_of_pair = is_message(static_cast<OpKind>(latest_.fields.kind));
  return "last " +
         (is_of_pair ? call + " number " + sequence : "collective " + sequence + " (" + call + ")") +
         (latest_.running ? ", running" : ", done") + pid;
}

// ---- answers to other hosts

void HierStatus::set_handler(const GroupEngine::QueryHandler& handler) {
  MutexLock lock(mutex_);
  handler_ = handler;
}

// Returns the ranks that this rank waits for, as "3 5". Returns an empty text if this rank is not in that
// collective or waits for no rank.
std::string HierStatus::missing_on_host(uint64_t sequence) const {
  if (sequence == 0 || host_wait_.load() != sequence) return "";
  return joined(host_.members_behind(), " ",
                [&](int32_t member) { return layout_.own_members()[static_cast<size_t>(member)]; });
}

std::string HierStatus::answer(const std::string& question) const {
  if (question.starts_with(kMissingQuestion))
    return missing_on_host(std::strtoull(question.c_str() + kMissingQuestion.size(), nullptr, 10));
  GroupEngine::QueryHandler handler;
  {
    MutexLock lock(mutex_);
    handler = handler_;
  }
  return question.empty() || !handler ? describe_latest() : handler(question);
}

// ---- questions to other hosts

std::vector<Answer> HierStatus::ask(std::span<const int32_t> ranks, const std::string& question,
                                    Deadline deadline) const {
  std::vector<int32_t> of_world;
  of_world.reserve(ranks.size());
  for (const int32_t rank : ranks) of_world.push_back(layout_.global_ranks()[static_cast<size_t>(rank)]);
  auto texts = world_.ask(state_.id(), of_world, question, deadline);
  std::vector<Answer> answers;
  for (size_t i = 0; i < ranks.size(); ++i) answers.push_back({ranks[i], std::move(texts[i])});
  return answers;
}

std::vector<Answer> HierStatus::query_hosts(uint64_t sequence, const std::string& question) const {
  if (rank_0_is_unresponsive()) return {};
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  if (!world_.elect("device", state_.id(), sequence, deadline)) {
    await_failure(kOthersAskedMs);
    return {};
  }
  std::vector<int32_t> leaders;
  for (int host = 0; host < layout_.hosts() && leaders.size() < kMostAskedRanks; ++host)
    if (host != layout_.own_host()) leaders.push_back(layout_.leader(host));
  return ask(leaders, question, deadline);
}

std::vector<Answer> HierStatus::query_rank(int32_t rank, const std::string& question) const {
  if (rank_0_is_unresponsive()) return {};
  return ask({&rank, 1}, question, Deadline::after_ms(kAnswerMs));
}

// Asks at most kMostAsked ranks; returns a text such as "rank 3: last collective 4 (barrier()), done (pid
// 4711); rank 4: no answer".
std::string HierStatus::latest_of(std::span<const int32_t> ranks, Deadline deadline) const {
  std::string text;
  for (const Answer& answer : ask(ranks.first(std::min(ranks.size(), kMostAsked)), "", deadline))
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(answer.rank) + ": " + answer.text;
  return text;
}

// Waits until the group has failed, which happens when the rank that asks on behalf of all publishes the
// failure with the answers.
void HierStatus::await_failure(int timeout_ms) const {
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  while (!has_failed_.load() && !deadline.passed()) sleep_until(Deadline::after_ms(5));
}

// ---- late ranks

// An answer that is not a list of ranks, such as "no answer", gives an empty result.
std::vector<int32_t> HierStatus::read_missing(int host, const std::string& answer) const {
  std::vector<int32_t> ranks;
  std::istringstream words(answer);
  for (int32_t rank = 0; words >> rank;)
    if (std::ranges::find(layout_.members(host), rank) != layout_.members(host).end()) ranks.push_back(rank);
  return ranks;
}

// A leader for which other hosts wait may have arrived, and may itself wait for ranks of its own host. Then
// those ranks are late, and the leader is not.
HierStatus::Late HierStatus::find_late(std::span<const int32_t> ranks, uint64_t sequence) const {
  Late late{{ranks.begin(), ranks.end()}, {}};
  std::vector<int32_t> leaders;
  for (const int32_t rank : ranks) {
    const int host = layout_.host_of(rank);
    const bool is_known = std::ranges::find(leaders, layout_.leader(host)) != leaders.end();
    if (host != layout_.own_host() && layout_.members(host).size() > 1 && !is_known &&
        leaders.size() < kMostAsked)
      leaders.push_back(layout_.leader(host));
  }
  if (leaders.empty()) return late;
  const Deadline deadline =
      Deadline::after_ms(kAnswerMs / 2);  // the rest of the time is for asking the late ranks
  for (const Answer& answer :
       ask(leaders, std::string(kMissingQuestion) + std::to_string(sequence), deadline)) {
    const int host = layout_.host_of(answer.rank);
    const std::vector<int32_t> missing = read_missing(host, answer.text);
    if (missing.empty()) continue;
    std::erase_if(late.ranks, [&](int32_t rank) { return layout_.host_of(rank) == host; });
    late.ranks.insert(late.ranks.end(), missing.begin(), missing.end());
    late.text +=
        "rank " + std::to_string(answer.rank) + " waits for " + list_ranks(missing) + " of its host; ";
  }
  std::ranges::sort(late.ranks);
  return late;
}

// Only one of the ranks that wait in a collective asks the late ranks and logs the answers.
void HierStatus::report_late(Waiting& waiting, const std::vector<int32_t>& ranks) const {
  const int64_t elapsed = now_ns() - waiting.since_ns;
  if (waiting.since_ns == 0 || waiting.reported || ranks.empty() || elapsed < late_report_ns()) return;
  if (rank_0_is_unresponsive()) return;
  waiting.reported = true;
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  if (!is_message(waiting.kind) && !world_.elect("late", state_.id(), waiting.sequence, deadline)) return;
  const Late late = is_message(waiting.kind) ? Late{ranks, {}} : find_late(ranks, waiting.sequence);
  remind("%s of group \"%s\" has waited %.1f s for %s; %s%s",
         numbered(op_kind_name(waiting.kind), waiting.sequence).c_str(), state_.name().c_str(),
         static_cast<double>(elapsed) / kNsPerSecond, list_ranks(late.ranks).c_str(), late.text.c_str(),
         latest_of(late.ranks, deadline).c_str());
}

std::string HierStatus::describe_late(const Call& call, bool has_met, std::span<const int32_t> ranks) const {
  FixedText<64> text;
  text.add(" %s within %.1f s", has_met ? "arrived, but did not finish" : "did not arrive",
           static_cast<double>(state_.timeout_ms(call)) / 1000);
  return list_ranks(ranks) + text.str();
}

// In a collective, one rank asks and publishes the answers; the other ranks wait for them. If all ranks had
// arrived, the text keeps the step in which a rank did not continue.
void HierStatus::explain_time_out(const Call& call, uint64_t sequence, bool has_met, Failure& cause) const {
  if (cause.code != DSC_ERR_TIMEOUT || cause.ranks.empty()) return;
  const bool is_named = !host_.revoked() && (is_message(call.kind) || !has_met);
  if (is_named) cause.text = describe_late(call, has_met, cause.ranks);
  if (rank_0_is_unresponsive()) return;
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  if (!is_message(call.kind) && !world_.elect("timeout", state_.id(), sequence, deadline))
    return await_failure(kOthersAnswerMs);
  const std::span<const int32_t> named(cause.ranks);
  const Late late =
      is_message(call.kind) ? Late{{named.begin(), named.end()}, {}} : find_late(named, sequence);
  cause.ranks = late.ranks;
  if (is_named) cause.text = describe_late(call, has_met, late.ranks);
  cause.text += "; " + late.text + latest_of(late.ranks, deadline);
}

}  // namespace dsc
