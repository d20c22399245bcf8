#include "engine_host/operation.hpp"

#include <algorithm>
#include <cstdio>

#include "base/log.hpp"
#include "comm/describe.hpp"
#include "comm/transfer.hpp"

namespace dsc {
namespace {

constexpr size_t kMostDescribed = 6;  // maximum number of missing ranks in an error message
constexpr int64_t kGlanceNs = 10 * kNsPerMs;

std::string seconds(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(ns) / kNsPerSecond);
  return text;
}

}  // namespace

std::string Operation::describe_ranks(const std::vector<int32_t>& ranks) const {
  return ranks.size() == 1 ? group_.describe_member(ranks.front()).str()
                           : list_ranks(group_.shown_ranks(ranks));
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
    text += (i == 0 ? "" : "; ") + group_.describe_member(ranks[i]).str() + ": " + latest_of(ranks[i]);
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

void Operation::revoke(dsc_result_t code, const RankList& ranks, std::string_view text) noexcept {
  Failure cause;
  cause.code = code;
  cause.ranks = ranks;
  cause.sequence = sequence_;
  cause.elapsed_ns = elapsed_ns();
  cause.operation = op_kind_name(call_.kind);
  cause.text = text;
  group_.revoke(cause);
}

Failure Operation::failure() const noexcept {
  Failure failure;
  if (is_nonfinite_) {
    failure.code = DSC_ERR_NONFINITE;
    failure.sequence = sequence_;
    failure.operation = op_kind_name(call_.kind);
    failure.set_group(group_.id(), group_.name());
    failure.index = found_.index;
    failure.ranks = {found_.source};
    failure.text = describe_found(found_);
  } else {
    const int32_t self = group_.shown_rank(group_.rank());
    failure = group_.first_cause();
    // An error that concerns only another rank is reported as REVOKED on this rank, with the text of that
    // error.
    const bool is_of_other =
        !group_.failed_here() && std::ranges::find(failure.ranks, self) == failure.ranks.end();
    if (is_of_other && !is_group_fatal(failure.code)) failure.code = DSC_ERR_REVOKED;
    say_if_late(failure, self, call_.kind, sequence_);
  }
  failure.elapsed_ns = elapsed_ns();
  return failure;
}

void fail_operation(Operation& operation, dsc_result_t code, const char* text) noexcept {
  operation.revoke(code, {operation.group_.rank()}, text);
}

std::vector<int32_t> Operation::missing() const {
  std::vector<int32_t> ranks;
  for (int member = 0; member < group_.size(); ++member)
    if (misses(member)) ranks.push_back(member);
  return ranks;
}

// A member may arrive and then leave. So if it has left, this checks again whether it has arrived.
int Operation::first_departed() const noexcept {
  for (int member = 0; member < group_.size(); ++member)
    if (misses(member) && group_.has_left(member) && misses(member)) return member;
  return kNoRank;
}

void Operation::glance_at_clock() noexcept {
  if (ticks_to_ns(tick_now() - looked_ticks_) >= kGlanceNs) look_at_clock();
}

void Operation::look_at_clock() noexcept {
  if (group_.revoked() || started_ticks_ == 0) return;
  looked_ticks_ = tick_now();
  if (const int member = first_departed(); member != kNoRank) {
    revoke(DSC_ERR_PEER_LEFT, {member}, group_.describe_departure(member));
    return;
  }
  const int64_t elapsed = elapsed_ns();
  if (elapsed >= timeout_ns_)
    time_out(elapsed);
  else if (!reported_late_ && elapsed >= late_report_ns())
    call_out([&] { report_late(elapsed); });
}

// Follows the messages in which ranks wait, starting with this rank, up to a rank that does not wait in a
// message. If the ranks wait for each other in a circle, returns only the ranks of the circle.
Operation::Chain Operation::chain() const {
  Chain found;
  if (!is_message(call_.kind)) return found;
  for (int member = group_.rank();;) {
    const auto before = std::ranges::find(found.ranks, member);
    found.is_circle = before != found.ranks.end();
    if (found.is_circle) {
      found.ranks.erase(found.ranks.begin(), before);
      return found;
    }
    found.ranks.push_back(member);
    const auto message = group_.open_message(member);
    if (!message) return found;
    member = message->peer;
  }
}

// Returns a text such as "rank 0 receives from rank 1, rank 1 receives from rank 0".
std::string Operation::describe_waits(std::span<const int32_t> ranks) const {
  std::string text;
  for (const int32_t rank : ranks) {
    const auto message = group_.open_message(rank);
    if (!message) continue;  // the message has just completed
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(group_.shown_rank(rank)) +
            (message->sends ? " sends to rank " : " receives from rank ") +
            std::to_string(group_.shown_rank(message->peer));
  }
  return text;
}

// Finds a rank for which this rank waits only indirectly, through messages of other ranks. Returns an empty
// text if there is none.
std::string Operation::describe_chain(std::vector<int32_t>& late, int64_t elapsed) const {
  Chain found = chain();
  if (found.ranks.size() < (found.is_circle ? 2 : 3)) return "";
  const std::string beginning = "not finished within " + seconds(elapsed) + ": ";
  if (found.is_circle) {
    const char* which = found.ranks.size() == 2 ? "other" : "next";
    const std::string text = describe_waits(found.ranks) + ": each waits for the " + which + " one";
    late = std::move(found.ranks);
    std::ranges::sort(late);
    return beginning + text;
  }
  late = {found.ranks.back()};
  found.ranks.pop_back();
  const std::string text =
      beginning + describe_waits(found.ranks) + ", and " + describe_ranks(late) + " did not arrive";
  return group_.is_part() ? text : text + "; " + describe_latest(late);
}

// Fails the group because of a time-out. If memory is short, the ranks and the text are left out.
void Operation::time_out(int64_t elapsed) noexcept {
  std::vector<int32_t> late;
  std::string text;
  call_out([&] { text = describe_time_out(late, elapsed); });
  revoke(DSC_ERR_TIMEOUT, late, text);
}

// Finds the ranks that are late. If all have arrived, these are the ranks that are still working or that were
// stopped.
std::string Operation::describe_time_out(std::vector<int32_t>& late, int64_t elapsed) const {
  if (std::string text = describe_chain(late, elapsed); !late.empty()) return text;
  late = missing();
  if (late.empty()) {
    for (int member = 0; member < group_.size(); ++member)
      if (member != group_.rank() && suspects(member)) late.push_back(member);
  }
  if (late.empty()) return "not finished within " + seconds(elapsed);
  const char* what = met_ticks_ == 0 ? " did not arrive within " : " arrived, but did not finish within ";
  std::string text = describe_ranks(late) + what + seconds(elapsed);
  // In a part of a larger group, the latest operation of a rank is not one that the user called.
  return group_.is_part() ? text : text + "; " + describe_latest(late);
}

void Operation::report_late(int64_t elapsed) {
  const std::vector<int32_t> ranks = missing();
  if (ranks.empty()) return;
  reported_late_ = true;
  // An operation between hosts begins with a gather on the host. Only this step waits for ranks that are
  // late; later steps wait for other hosts.
  if (group_.is_part() && call_.kind != OpKind::kGather) return;
  if (group_.is_part())
    return remind("an operation of group \"%s\" has waited %s on this host for %s", group_.name().c_str(),
                  seconds(elapsed).c_str(), describe_ranks(ranks).c_str());
  remind("%s of group \"%s\" has waited %s for %s; %s", numbered(op_kind_name(call_.kind), sequence_).c_str(),
         group_.name().c_str(), seconds(elapsed).c_str(), describe_ranks(ranks).c_str(),
         describe_latest(ranks).c_str());
}

}  // namespace dsc
