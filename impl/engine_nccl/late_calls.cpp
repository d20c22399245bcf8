#include "engine_nccl/late_calls.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "engine_nccl/status_query.hpp"

namespace dsc {
namespace {

OpKind other_end(OpKind kind) { return kind == OpKind::kSend ? OpKind::kRecv : OpKind::kSend; }

}  // namespace

// The late ranks are determined again after a rank was found to have left, because that rank may have made
// the call just before it left.
template <typename Late>
std::optional<CallFailure> LateCalls::find_departed_among(const Call& call, uint64_t sequence,
                                                          const Late& late_ranks) const {
  const std::vector<int32_t> late = late_ranks();
  const auto left =
      std::ranges::find_if(late, [this](int32_t rank) { return group_.published->has_left(rank); });
  if (left == late.end()) return std::nullopt;
  const std::vector<int32_t> still_late = late_ranks();
  if (std::ranges::find(still_late, *left) == still_late.end()) return std::nullopt;
  CallFailure found{call, group_.failure(DSC_ERR_PEER_LEFT, call.kind, sequence,
                                         "rank " + std::to_string(*left) +
                                             " has left the group without calling this operation")};
  found.cause.ranks = {*left};
  return found;
}

std::optional<CallFailure> LateCalls::find(int64_t now) {
  if (!group_.published) return std::nullopt;
  const PublishedCalls& published = *group_.published;
  if (awaited_call_ == 0 || published.missing(awaited_call_).empty()) {
    const uint64_t latest = latest_call_.load();
    if (latest == awaited_call_) return std::nullopt;
    awaited_call_ = latest;
    awaited_since_ns_ = now;
    return std::nullopt;
  }
  Call call;
  call.kind = published.kind_of(awaited_call_);
  if (auto found = find_departed_among(call, awaited_call_, [&] { return published.missing(awaited_call_); }))
    return found;
  const int64_t elapsed_ns = now - awaited_since_ns_;
  if (elapsed_ns <= group_.host->timeout_ms() * kNsPerMs) return std::nullopt;
  return timed_out(call, awaited_call_, elapsed_ns);
}

std::optional<CallFailure> LateCalls::find_departed(const Call& call, uint64_t sequence) const {
  const auto& published = group_.published;
  if (!published || !is_message(call.kind) || !published->has_left(call.root)) return std::nullopt;
  return find_departed_among(call, sequence, [&] {
    return published->called_message(other_end(call.kind), call.root, group_.host->rank(), sequence).late;
  });
}

CallFailure LateCalls::timed_out(const Call& call, uint64_t sequence, int64_t elapsed_ns) const {
  const std::string limit = std::to_string(group_.host->state.timeout_ms(call));
  CallFailure found{
      call, group_.failure(DSC_ERR_TIMEOUT, call.kind, sequence, "not finished within " + limit + " ms")};
  found.cause.elapsed_ns = elapsed_ns;
  return found;
}

// Returns what each host knows about an operation; this host comes first.
std::vector<CallThere> LateCalls::ask_all(const Call& call, uint64_t sequence) const {
  const PublishedCalls& published = *group_.published;
  const int32_t self = group_.host->rank();
  std::vector<Answer> answers;
  std::vector<CallThere> all;
  if (is_message(call.kind)) {
    const StatusQuery question{other_end(call.kind), call.root, self, sequence};
    all.push_back(published.called_message(call.kind, self, call.root, sequence));
    if (published.is_here(call.root))
      all.push_back(published.called_message(question.kind, call.root, self, sequence));
    else
      answers = group_.host->query_rank(call.root, encode(question));
  } else {
    all.push_back(published.called(sequence));
    if (!group_.on_one_host())
      answers = group_.host->query_hosts(sequence, encode(StatusQuery{.sequence = sequence}));
  }
  for (const Answer& answer : answers) {
    auto there = decode_call(answer.text);
    if (!there)
      there = CallThere{0, kNoRank, {}, {}, "; rank " + std::to_string(answer.rank) + " does not answer"};
    all.push_back(*std::move(there));
  }
  return all;
}

void LateCalls::explain(const Call& call, Failure& cause) const {
  const uint64_t sequence = cause.sequence;
  if (cause.code != DSC_ERR_TIMEOUT || !group_.published || sequence == 0 || group_.host->revoked()) return;
  const std::vector<CallThere> all = ask_all(call, sequence);
  const CallThere& here = all.front();
  std::string late_text;
  cause.ranks = {};
  for (const CallThere& there : all) {
    if (there.fingerprint != 0 && here.fingerprint != 0 && there.fingerprint != here.fingerprint) {
      cause.code = DSC_ERR_MISMATCH;
      cause.ranks = {there.rank};
      late_text = ": ranks called different operations: rank " + std::to_string(here.rank) + ": " +
                  here.words + "; rank " + std::to_string(there.rank) + ": " + there.words;
      break;
    }
    for (const int32_t rank : there.late) cause.ranks.push_back(rank);
    late_text += there.late_text;
  }
  if (late_text.empty() && !group_.on_one_host() && all.size() == 1)
    late_text = "; all ranks of this host have called this operation, and the other hosts have not answered";
  if (late_text.empty()) late_text = "; all ranks that answered have called this operation";
  cause.text += late_text;
}

}  // namespace dsc
