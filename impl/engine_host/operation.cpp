#include "engine_host/operation.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/log.hpp"
#include "comm/describe.hpp"
#include "comm/transfer.hpp"

namespace dsc {
namespace {

constexpr size_t kMostDescribed = 6;  // most missing ranks that a message describes
constexpr int64_t kGlanceNs = 10 * kNsPerMs;

std::string seconds(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(ns) / kNsPerSecond);
  return text;
}

}  // namespace

std::string Operation::describe_ranks(const std::vector<int32_t>& ranks) const {
  return ranks.size() == 1 ? group_.describe_member(ranks.front()) : list_ranks(group_.shown_ranks(ranks));
}

// Describes the latest calls of missing ranks.
std::string Operation::describe_latest(const std::vector<int32_t>& ranks) const {
  const auto latest_of = [this](int32_t rank) {
    const std::string latest = group_.describe_latest(rank);
    return latest.empty() ? "no call before" : "last " + latest;
  };
  if (ranks.size() == 1) return latest_of(ranks.front());
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMostDescribed); ++i)
    text += (i == 0 ? "" : "; ") + group_.describe_member(ranks[i]) + ": " + latest_of(ranks[i]);
  return ranks.size() > kMostDescribed ? text + "; ..." : text;
}

void Operation::create(int64_t ticks, int32_t timeout_ms) noexcept {
  if (group_.is_part()) return;
  record_ =
      group_.recorder().open(recorded_call(call_, sequence_, send_bytes_, recv_bytes_, timeout_ms), ticks);
}

void Operation::start(int64_t ticks, int32_t timeout_ms) noexcept {
  timeout_ns_ = timeout_ms * kNsPerMs;
  started_ticks_ = looked_ticks_ = ticks;
  record_.start(ticks);
  group_.show_latest(call_, sequence_);
}

Failure Operation::cause_of(dsc_result_t code, int rank) const noexcept {
  Failure cause;
  cause.code = code;
  cause.rank = rank;
  cause.sequence = sequence_;
  cause.elapsed_ns = elapsed_ns();
  return cause;
}

void Operation::revoke(dsc_result_t code, std::vector<int32_t> ranks, const std::string& text) noexcept {
  revoke(code, ranks.empty() ? kNoRank : ranks.front(), [&](Failure& cause) {
    cause.ranks = std::move(ranks);
    cause.text = text;
  });
}

Progress Operation::fail_with_cause() noexcept {
  Failure& failure = failure_.emplace();
  failure.code = group_.first_code();  // without memory only the code is kept
  call_out([&] {
    failure = group_.first_cause();
    failure.sequence = sequence_;
    failure.operation = op_kind_name(call_.kind);
    failure.elapsed_ns = elapsed_ns();
    const int32_t self = group_.shown_rank(group_.rank());
    if (failure.code == DSC_ERR_TIMEOUT && failure.ranks == std::vector<int32_t>{self})
      failure.text += "; this is rank " + std::to_string(self) + ", which came too late";
  });
  return Progress::kFailed;
}

Progress Operation::fail_nonfinite() noexcept {
  Failure& failure = failure_.emplace();
  failure.code = DSC_ERR_NONFINITE;
  failure.rank = found_.source;
  failure.index = found_.index;
  failure.group = group_.id();
  failure.sequence = sequence_;
  failure.elapsed_ns = elapsed_ns();
  call_out([&] {
    failure.ranks = {found_.source};
    failure.operation = op_kind_name(call_.kind);
    failure.text = describe_found(found_);
  });
  return Progress::kFailed;
}

void fail_operation(Operation& operation, dsc_result_t code, const char* text) noexcept {
  operation.revoke(code, operation.group_.rank(), [&](Failure& cause) { cause.text = text; });
}

std::vector<int32_t> Operation::missing() const {
  std::vector<int32_t> ranks;
  for (int member = 0; member < group_.size(); ++member)
    if (misses(member)) ranks.push_back(member);
  return ranks;
}

// A member may arrive and then leave, so only one that is still missing after it has left never arrived.
int Operation::first_departed() const noexcept {
  for (int member = 0; member < group_.size(); ++member)
    if (misses(member) && group_.has_left(member) && misses(member)) return member;
  return kNoRank;
}

void Operation::glance_at_clock() noexcept {
  if (ticks_to_ns(tick_now() - looked_ticks_) >= kGlanceNs) look_at_clock();
}

// Decides first and then composes the text, which needs memory.
void Operation::look_at_clock() noexcept {
  if (group_.revoked() || started_ticks_ == 0) return;
  looked_ticks_ = tick_now();
  if (const int member = first_departed(); member != kNoRank) {
    revoke(DSC_ERR_PEER_LEFT, member,
           [&](Failure& cause) { cause.text = group_.describe_departure(member); });
    return;
  }
  const int64_t elapsed = elapsed_ns();
  if (elapsed >= timeout_ns_)
    revoke(DSC_ERR_TIMEOUT, kNoRank, [this](Failure& cause) { describe_time_out(cause); });
  else if (elapsed >= kLateReportNs && !reported_late_)
    call_out([&] { report_late(elapsed); });
}

// Returns the ranks that wait for each other in messages, from this one to the one that waits for it; empty
// if there is no such circle.
std::vector<int32_t> Operation::circle() const {
  if (!is_message(call_.kind)) return {};
  std::vector<int32_t> ranks;
  for (int member = group_.rank();;) {
    if (std::ranges::find(ranks, member) != ranks.end()) break;
    ranks.push_back(member);
    const auto message = group_.open_message(member);
    if (!message) return {};
    member = message->peer;
    if (member == group_.rank()) return ranks.size() > 1 ? ranks : std::vector<int32_t>{};
  }
  return {};
}

// Returns a text such as "rank 0 receives from rank 1, rank 1 receives from rank 0: each waits for the
// other one".
std::string Operation::describe_circle(const std::vector<int32_t>& ranks) const {
  std::string text;
  for (const int32_t rank : ranks) {
    const auto message = group_.open_message(rank);
    if (!message) continue;  // its message has just completed
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(group_.shown_rank(rank)) +
            (message->sends ? " sends to rank " : " receives from rank ") +
            std::to_string(group_.shown_rank(message->peer));
  }
  return text + ": each waits for the " + (ranks.size() == 2 ? "other" : "next") + " one";
}

// After all have arrived, a rank may still be working or may have been stopped; it is named then.
void Operation::describe_time_out(Failure& cause) const {
  if (cause.ranks = circle(); !cause.ranks.empty()) {
    cause.text = "not finished within " + seconds(cause.elapsed_ns) + ": " + describe_circle(cause.ranks);
    std::ranges::sort(cause.ranks);
    cause.rank = cause.ranks.front();
    return;
  }
  cause.ranks = missing();
  if (cause.ranks.empty()) {
    for (int member = 0; member < group_.size(); ++member)
      if (member != group_.rank() && suspects(member)) cause.ranks.push_back(member);
  }
  if (cause.ranks.empty()) {
    cause.text = "not finished within " + seconds(cause.elapsed_ns);
    return;
  }
  cause.rank = cause.ranks.front();
  const char* what = met_ticks_ == 0 ? " did not come within " : " came, but did not finish within ";
  cause.text = describe_ranks(cause.ranks) + what + seconds(cause.elapsed_ns);
  // What ranks did last in a part of a larger group is not an operation that the user called.
  if (!group_.is_part()) cause.text += "; " + describe_latest(cause.ranks);
}

void Operation::report_late(int64_t elapsed) {
  const std::vector<int32_t> ranks = missing();
  if (ranks.empty()) return;
  reported_late_ = true;
  log(DSC_LOG_WARN, "%s number %" PRIu64 " of group \"%s\" has waited %s for %s; %s",
      op_kind_name(call_.kind), sequence_, group_.name().c_str(), seconds(elapsed).c_str(),
      describe_ranks(ranks).c_str(), describe_latest(ranks).c_str());
}

}  // namespace dsc
