#include "bootstrap/coordinator.hpp"

#include <algorithm>

#include "base/joined.hpp"
#include "base/log.hpp"

namespace dsc {
namespace {

constexpr int64_t kConflictSlackMs = 2000;
constexpr size_t kNamesInReport = 8;

std::string names(const std::vector<Hello>& hellos) {
  return first_joined(hellos, kNamesInReport, [](const Hello& hello) { return describe(hello); });
}

}  // namespace

Coordinator::Coordinator(int32_t world_size, Hosts hosts, Deadline deadline, int64_t progress_ms)
    : world_size_(world_size),
      hosts_(hosts),
      progress_ns_(progress_ms * kNsPerMs),
      start_ns_(now_ns()),
      deadline_(deadline),
      next_log_ns_(start_ns_ + progress_ns_) {}

std::optional<MeetingOutcome> Coordinator::decide(const std::vector<Hello>& came,
                                                  const std::vector<Hello>& left) {
  const bool complete = came.size() >= static_cast<size_t>(expected_hellos(came));
  const bool over = complete || deadline_.passed();
  const bool waits_for_others =
      conflict_since_ns_ != 0 && now_ns() - conflict_since_ns_ < kConflictSlackMs * kNsPerMs;
  if (!over && waits_for_others) return std::nullopt;
  MeetingOutcome outcome;
  if (const auto conflict = find_conflict(came, hosts_)) {
    const bool is_new = conflict_since_ns_ == 0;
    if (is_new) conflict_since_ns_ = now_ns();
    if (!over && is_new) return std::nullopt;
    outcome.code = conflict->code;
    outcome.text = conflict->text;
    outcome.ranks = conflict->ranks;
    return outcome;
  }
  conflict_since_ns_ = 0;  // the rank that caused the conflict may have left
  if (complete) {
    outcome.nonce = random_nonce();
    outcome.members = make_table(came);
    return outcome;
  }
  if (over) return timed_out(came, left);
  log_progress(came);
  return std::nullopt;
}

Deadline Coordinator::next_look() const noexcept {
  const bool conflict = conflict_since_ns_ != 0;
  const Deadline next{conflict ? conflict_since_ns_ + kConflictSlackMs * kNsPerMs : next_log_ns_};
  return sooner(deadline_, next);
}

MeetingOutcome Coordinator::timed_out(const std::vector<Hello>& came, const std::vector<Hello>& left) const {
  MeetingOutcome outcome;
  outcome.code = DSC_ERR_TIMEOUT;
  outcome.ranks = missing_ranks(came);
  outcome.text = "only " + std::to_string(came.size()) + " of " + std::to_string(world_size_) +
                 " ranks arrived within " + std::to_string((now_ns() - start_ns_) / kNsPerMs) +
                 " ms; missing: rank " + rank_list(missing_ranks(came)) + "; arrived: " + names(came);
  if (!left.empty()) outcome.text += "; arrived and left: " + names(left);
  return outcome;
}

void Coordinator::log_progress(const std::vector<Hello>& came) {
  if (now_ns() < next_log_ns_) return;
  next_log_ns_ += progress_ns_;
  log(DSC_LOG_LEVEL_WARN, "start-up has waited %lld s for rank %s (world size %d)",
      static_cast<long long>((now_ns() - start_ns_) / kNsPerSecond), rank_list(missing_ranks(came)).c_str(),
      world_size_);
}

}  // namespace dsc
