// Operations that are not done in time: finds ranks that have not called them, or have called another one.
#include <algorithm>
#include <cstdio>

#include "base/guard.hpp"
#include "base/thread.hpp"
#include "control/group.hpp"
#include "engine_nccl/nccl_engine.hpp"
#include "engine_nccl/status_query.hpp"

namespace dsc {
namespace {

OpKind other_end(OpKind kind) { return kind == OpKind::kSend ? OpKind::kRecv : OpKind::kSend; }

}  // namespace

// Fails the group if a late rank has left. The late ranks are read again afterwards, because a rank may
// have made the call just before it left.
template <typename Late>
bool NcclEngine::somebody_left(OpKind kind, uint64_t number, const Late& late_ranks) {
  const std::vector<int32_t> late = late_ranks();
  const auto left = std::ranges::find_if(late, [this](int32_t rank) { return board_->has_left(rank); });
  if (left == late.end()) return false;
  const std::vector<int32_t> still_late = late_ranks();
  if (std::ranges::find(still_late, *left) == still_late.end()) return false;
  Failure cause;
  cause.code = DSC_ERR_PEER_LEFT;
  cause.rank = *left;
  cause.ranks = {*left};
  cause.sequence = number;
  cause.operation = op_kind_name(kind);
  cause.group = host_->id();
  cause.revoked = true;
  cause.text = host_->state.describe(
      kind, number, "rank " + std::to_string(*left) + " has left the group without calling it");
  revoke_beside(cause, {}, 0);
  return true;
}

// The end of operations on callers' streams is not tracked if all ranks are on one host. This finds ranks
// that have not made the call at all.
void NcclEngine::look_at_calls(int64_t now) {
  if (!board_) return;
  if (awaited_call_ == 0 || board_->behind(awaited_call_).empty()) {
    const uint64_t latest = latest_call_.load();
    if (latest == awaited_call_) return;
    awaited_call_ = latest;
    awaited_since_ns_ = now;
    return;
  }
  Call call;
  call.kind = board_->kind_of(awaited_call_);
  if (somebody_left(call.kind, awaited_call_, [&] { return board_->behind(awaited_call_); })) return;
  const int64_t elapsed_ns = now - awaited_since_ns_;
  if (elapsed_ns > host_->timeout_ms() * kNsPerMs) time_out(call, awaited_call_, elapsed_ns);
}

// Operations launched without an event have unknown completion. At failure we only know that those which
// some rank of this host has not called will fail, so these are recorded as failed.
void NcclEngine::record_uncalled() noexcept {
  if (!board_ || !on_one_host_ || !host_->revoked()) return;
  uint64_t followed = UINT64_MAX;  // the first running collective with an event
  call_out([&] {
    const MutexLock lock(mutex_);
    for (const auto& work : pending_)
      if (!work->done() && !is_message(work->call())) followed = std::min(followed, work->number());
  });
  const dsc_result_t cause = local_.group->first_code();
  const dsc_result_t code = is_group_fatal(cause) && !cause_recorded_.load() ? cause : DSC_ERR_REVOKED;
  const uint64_t first =
      local_.group->recorder().fail_detached(board_->least() + 1, followed, tick_now(), code);
  if (first == 0) return;
  if (first < followed) cause_recorded_.store(true);
  local_.group->tell_failure();
}

// Fails the group if the other end of a message has left without calling it.
bool NcclEngine::peer_left(const Call& call, uint64_t number) {
  if (!board_ || !is_message(call) || !board_->has_left(call.root)) return false;
  return somebody_left(call.kind, number, [&] {
    return board_->called_message(other_end(call.kind), call.root, host_->rank(), number).late;
  });
}

void NcclEngine::time_out(const Call& call, uint64_t number, int64_t elapsed_ns) {
  Failure cause;
  cause.code = DSC_ERR_TIMEOUT;
  cause.sequence = number;
  cause.elapsed_ns = elapsed_ns;
  cause.operation = op_kind_name(call.kind);
  cause.group = host_->id();
  cause.revoked = true;
  char text[64];
  std::snprintf(text, sizeof text, "not done within %d ms",
                call.timeout_ms > 0 ? call.timeout_ms : host_->timeout_ms());
  cause.text = host_->state.describe(call.kind, number, text);
  revoke_beside(cause, call, number);
}

// Revokes the group on a separate thread: asking and telling other hosts may take seconds, during which the
// watch must look after other communicators.
void NcclEngine::revoke_beside(const Failure& cause, const Call& call, uint64_t number) {
  const auto conclude = [cause, call, number](NcclEngine& engine) {
    Failure known = cause;
    call_out([&] { engine.explain(call, number, known); });
    if (!engine.finalized_.load() && !engine.host_->state.is_over()) engine.revoke(known);
  };
  if (on_one_host_) return conclude(*this);
  if (concluding_.exchange(true)) return;
  const auto run = [self = shared_from_this(), conclude] {
    conclude(*self);
    self->concluding_.store(false);
  };
  if (!call_out([&] { start_thread("dsc-conclude", run).detach(); })) run();
}

// Returns what each host knows of an operation; this host comes first.
std::vector<CallThere> NcclEngine::ask_all(const Call& call, uint64_t number) {
  const int32_t self = host_->rank();
  std::vector<Answer> answers;
  std::vector<CallThere> all;
  if (is_message(call)) {
    const StatusQuery question{other_end(call.kind), call.root, self, number};
    all.push_back(board_->called_message(call.kind, self, call.root, number));
    if (board_->is_here(call.root))
      all.push_back(board_->called_message(question.kind, call.root, self, number));
    else
      answers = host_->query_rank(call.root, encode(question));
  } else {
    all.push_back(board_->called(number));
    if (!on_one_host_) answers = host_->query_hosts(number, encode(StatusQuery{.number = number}));
  }
  for (const Answer& answer : answers) {
    auto there = decode_call(answer.text);
    if (!there)
      there = CallThere{0, kNoRank, {}, {}, "; rank " + std::to_string(answer.rank) + " gives no answer"};
    all.push_back(*std::move(there));
  }
  return all;
}

// Adds to a time-out which ranks are at fault: those that have not made the call or made another one.
void NcclEngine::explain(const Call& call, uint64_t number, Failure& cause) {
  if (cause.code != DSC_ERR_TIMEOUT || !board_ || number == 0 || host_->revoked()) return;
  const std::vector<CallThere> all = ask_all(call, number);
  const CallThere& here = all.front();
  std::string late_text;
  cause.ranks.clear();
  for (const CallThere& there : all) {
    if (there.fingerprint != 0 && here.fingerprint != 0 && there.fingerprint != here.fingerprint) {
      cause.code = DSC_ERR_MISMATCH;
      cause.ranks = {there.rank};
      late_text = ": ranks called different operations: rank " + std::to_string(here.rank) + ": " +
                  here.words + "; rank " + std::to_string(there.rank) + ": " + there.words;
      break;
    }
    cause.ranks.insert(cause.ranks.end(), there.late.begin(), there.late.end());
    late_text += there.late_text;
  }
  if (late_text.empty() && !on_one_host_ && all.size() == 1)
    late_text = "; all ranks of this host have called it, and others were not heard of";
  if (late_text.empty()) late_text = "; all ranks that were asked have called it";
  cause.text += late_text;
  cause.rank = cause.ranks.empty() ? kNoRank : cause.ranks.front();
}

}  // namespace dsc
