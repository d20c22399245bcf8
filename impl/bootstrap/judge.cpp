#include "bootstrap/judge.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace dsc {
namespace {

constexpr int64_t kConflictGraceMs = 2000;
constexpr size_t kNamesInReport = 8;

std::string names(const std::vector<Claim>& claims) {
  std::string text;
  for (size_t i = 0; i < std::min(claims.size(), kNamesInReport); ++i)
    text += (i == 0 ? "" : ", ") + describe(claims[i]);
  if (claims.size() > kNamesInReport)
    text += " and " + std::to_string(claims.size() - kNamesInReport) + " more";
  return text;
}

}  // namespace

Judge::Judge(int32_t world_size, Hosts hosts, Deadline deadline, int64_t progress_ms)
    : world_size_(world_size),
      hosts_(hosts),
      progress_ns_(progress_ms * kNsPerMs),
      start_ns_(now_ns()),
      deadline_(deadline),
      next_log_ns_(start_ns_ + progress_ns_) {}

std::optional<Verdict> Judge::decide(const std::vector<Claim>& came, const std::vector<Claim>& left) {
  const bool complete = came.size() >= static_cast<size_t>(expected_claims(came));
  const bool over = complete || deadline_.passed();
  const bool in_grace =
      conflict_since_ns_ != 0 && now_ns() - conflict_since_ns_ < kConflictGraceMs * kNsPerMs;
  if (!over && in_grace) return std::nullopt;
  Verdict verdict;
  if (const auto conflict = find_conflict(came, hosts_)) {
    const bool is_new = conflict_since_ns_ == 0;
    if (is_new) conflict_since_ns_ = now_ns();
    if (!over && is_new) return std::nullopt;
    verdict.code = conflict->code;
    verdict.text = conflict->text;
    return verdict;
  }
  conflict_since_ns_ = 0;  // the rank at fault may have left
  if (complete) {
    verdict.nonce = random_nonce();
    verdict.members = make_table(came);
    return verdict;
  }
  if (over) return timed_out(came, left);
  log_progress(came);
  return std::nullopt;
}

Deadline Judge::next_look() const noexcept {
  const bool conflict = conflict_since_ns_ != 0;
  const Deadline next{conflict ? conflict_since_ns_ + kConflictGraceMs * kNsPerMs : next_log_ns_};
  return sooner(deadline_, next);
}

Verdict Judge::timed_out(const std::vector<Claim>& came, const std::vector<Claim>& left) const {
  Verdict verdict;
  verdict.code = DSC_ERR_TIMEOUT;
  verdict.text = "only " + std::to_string(came.size()) + " of " + std::to_string(world_size_) +
                 " came within " + std::to_string((now_ns() - start_ns_) / kNsPerMs) + " ms; missing: rank " +
                 rank_list(missing_ranks(came)) + "; came: " + names(came);
  if (!left.empty()) verdict.text += "; came and went away: " + names(left);
  return verdict;
}

void Judge::log_progress(const std::vector<Claim>& came) {
  if (now_ns() < next_log_ns_) return;
  next_log_ns_ += progress_ns_;
  log(DSC_LOG_WARN, "start-up waits since %lld s for rank %s of %d",
      static_cast<long long>((now_ns() - start_ns_) / kNsPerSecond), rank_list(missing_ranks(came)).c_str(),
      world_size_);
}

}  // namespace dsc
