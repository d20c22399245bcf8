#include "host/operation.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/log.hpp"

namespace dsc {
namespace {

constexpr size_t kMostDescribed = 6;  // of the ranks that are missing
constexpr int64_t kGlanceNs = 10 * kNsPerMs;

std::string seconds(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(ns) / kNsPerSecond);
  return text;
}

}  // namespace

std::string list_ranks(const std::vector<int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

std::string describe_found(const NonFinite& found) {
  return "the input of rank " + std::to_string(found.source) + " is a NaN or infinite at element " +
         std::to_string(found.index) + "; " + std::to_string(found.count) +
         (found.count == 1 ? " element of all inputs is NaN or infinite"
                           : " elements of all inputs are NaN or infinite");
}

std::string describe_difference(const std::vector<std::string>& calls) {
  std::vector<std::string> kinds;
  for (const std::string& call : calls)
    if (std::find(kinds.begin(), kinds.end(), call) == kinds.end()) kinds.push_back(call);
  std::string text;
  for (const std::string& kind : kinds) {
    std::vector<int32_t> ranks;
    for (size_t rank = 0; rank < calls.size(); ++rank)
      if (calls[rank] == kind) ranks.push_back(static_cast<int32_t>(rank));
    text += (text.empty() ? "" : "; ") + list_ranks(ranks) + ": " + kind;
  }
  return text;
}

std::string Operation::describe_ranks(const std::vector<int32_t>& ranks) const {
  return ranks.size() == 1 ? group_.describe_member(ranks.front()) : list_ranks(ranks);
}

// What those who are missing began last.
std::string Operation::describe_latest(const std::vector<int32_t>& ranks) const {
  if (ranks.size() == 1) return "last " + group_.describe_latest(ranks.front());
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMostDescribed); ++i)
    text += (i == 0 ? "" : "; ") + group_.describe_member(ranks[i]) + ": last " +
            group_.describe_latest(ranks[i]);
  return ranks.size() > kMostDescribed ? text + "; ..." : text;
}

void Operation::create(int64_t ticks, int32_t timeout_ms) noexcept {
  RecordedCall call;
  call.kind = call_.kind;
  call.dtype = call_.dtype;
  call.op = call_.op;
  call.root = call_.root;
  call.sequence = comes_before_numbers(call_.kind) ? 0 : sequence_;
  call.send_bytes = send_bytes_;
  call.recv_bytes = recv_bytes_;
  call.timeout_ms = timeout_ms;
  record_ = group_.recorder().open(call, ticks);
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
  failure.code = group_.first_code();  // all that can be told without memory
  call_out([&] {
    failure = group_.first_cause();
    failure.sequence = sequence_;
    failure.operation = op_kind_name(call_.kind);
    failure.elapsed_ns = elapsed_ns();
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

// A member may come and then leave: only one that is still missing afterwards never came.
int Operation::first_departed() const noexcept {
  for (int member = 0; member < group_.size(); ++member)
    if (misses(member) && group_.has_left(member) && misses(member)) return member;
  return kNoRank;
}

void Operation::glance_at_clock() noexcept {
  if (ticks_to_ns(tick_now() - looked_ticks_) >= kGlanceNs) look_at_clock();
}

// Decides first, and then looks for words: those need memory.
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

// Once all have met, somebody may still be working, or have been stopped.
void Operation::describe_time_out(Failure& cause) const {
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
  cause.text =
      describe_ranks(cause.ranks) + what + seconds(cause.elapsed_ns) + "; " + describe_latest(cause.ranks);
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
