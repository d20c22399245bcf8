#include "host/operation.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/log.hpp"
#include "base/process_guard.hpp"

namespace dsc {
namespace {

constexpr size_t kMostDescribed = 6;  // of the ranks that are missing
constexpr int64_t kLateReportNs = 10 * kNsPerSecond;

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
         (found.count == 1 ? " element of all inputs is" : " elements of all inputs are");
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

std::string Operation::describe_missing(const std::vector<int32_t>& ranks) const {
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
  call.sequence = call_.kind == OpKind::kReady ? 0 : sequence_;  // it comes before the numbers that users see
  call.send_bytes = send_bytes_;
  call.recv_bytes = recv_bytes_;
  call.timeout_ms = timeout_ms;
  record_ = group_.recorder().open(call, ticks);
}

void Operation::start(int64_t ticks, int32_t timeout_ms) noexcept {
  timeout_ns_ = timeout_ms * kNsPerMs;
  started_ticks_ = ticks;
  record_.start(ticks);
  group_.show_latest(call_, sequence_);
}

void Operation::revoke(dsc_result_t code, std::vector<int32_t> ranks, const std::string& text) noexcept {
  Failure cause;
  cause.code = code;
  cause.rank = ranks.empty() ? kNoRank : ranks.front();
  cause.ranks = std::move(ranks);
  cause.sequence = sequence_;
  cause.elapsed_ns = elapsed_ns();
  call_out([&] {  // without memory the code must do
    cause.operation = op_kind_name(call_.kind);
    cause.text = text;
  });
  group_.revoke(cause);
}

Progress Operation::fail_with_cause() noexcept {
  failure_.code = DSC_ERR_REVOKED;  // all that can be told without memory
  call_out([this] {
    failure_ = group_.first_cause();
    failure_.sequence = sequence_;
    failure_.operation = op_kind_name(call_.kind);
    failure_.elapsed_ns = elapsed_ns();
  });
  return Progress::kFailed;
}

Progress Operation::fail_nonfinite() noexcept {
  failure_.code = DSC_ERR_NONFINITE;
  failure_.rank = found_.source;
  failure_.index = found_.index;
  failure_.group = group_.id();
  failure_.sequence = sequence_;
  failure_.elapsed_ns = elapsed_ns();
  call_out([&] {
    failure_.ranks = {found_.source};
    failure_.operation = op_kind_name(call_.kind);
    failure_.text = describe_found(found_);
  });
  return Progress::kFailed;
}

void fail_operation(Operation& operation, dsc_result_t code, const char* text) noexcept {
  const bool told = call_out([&] { operation.revoke(code, {operation.group_.rank()}, text); });
  if (!told) operation.revoke(code, {}, {});
}

bool Operation::is_missing(int32_t rank) const {
  const std::vector<int32_t> ranks = missing();
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// Without memory for a list or a text, the next look comes soon enough.
void Operation::look_at_clock() noexcept {
  call_out([this] { inspect_clock(); });
}

void Operation::inspect_clock() {
  if (group_.revoked() || started_ticks_ == 0) return;
  const std::vector<int32_t> ranks = missing();
  for (const int32_t rank : ranks)
    if (group_.has_left(rank) && is_missing(rank)) {  // it may have come and left since the list was made
      revoke(DSC_ERR_PEER_LEFT, {rank}, group_.describe_member(rank) + " has left the group");
      return;
    }
  const int64_t elapsed = elapsed_ns();
  if (elapsed >= timeout_ns_) {
    revoke(DSC_ERR_TIMEOUT, ranks,
           ranks.empty() ? "not finished within " + seconds(elapsed)
                         : describe_missing(ranks) + " did not come within " + seconds(elapsed) + "; " +
                               describe_latest(ranks));
    return;
  }
  if (elapsed < kLateReportNs || reported_late_ || ranks.empty()) return;
  reported_late_ = true;
  log(DSC_LOG_WARN, "%s number %" PRIu64 " of group \"%s\" has waited %s for %s; %s",
      op_kind_name(call_.kind), sequence_, group_.name().c_str(), seconds(elapsed).c_str(),
      describe_missing(ranks).c_str(), describe_latest(ranks).c_str());
}

}  // namespace dsc
