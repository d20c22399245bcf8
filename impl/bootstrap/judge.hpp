// Decides from the claims of the ranks that have arrived: a table of members, or the reason why they cannot
// form a world. The rank that hosts a meeting owns one Judge.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/claims.hpp"
#include "bootstrap/meeting_wire.hpp"

namespace dsc {

class Judge {
 public:
  // Every progress_ms the missing ranks are logged.
  Judge(int32_t world_size, Hosts hosts, Deadline deadline, int64_t progress_ms);

  // The earliest deadline of all ranks limits the wait.
  void hurry(Deadline deadline) noexcept { deadline_ = sooner(deadline_, deadline); }

  // Returns nullopt while waiting makes sense. After a conflict it waits a little, so that ranks that are
  // about to arrive learn of it too. `left` are ranks that arrived and left; they are only mentioned in the
  // error.
  std::optional<Verdict> decide(const std::vector<Claim>& came, const std::vector<Claim>& left);

  // Returns when decide() may have another result even if no rank arrives.
  Deadline next_look() const noexcept;

 private:
  Verdict timed_out(const std::vector<Claim>& came, const std::vector<Claim>& left) const;
  void log_progress(const std::vector<Claim>& came);

  const int32_t world_size_;
  const Hosts hosts_;
  const int64_t progress_ns_;
  const int64_t start_ns_;
  Deadline deadline_;
  int64_t next_log_ns_;
  int64_t conflict_since_ns_ = 0;  // 0 if there is no conflict
};

}  // namespace dsc
