// From the claims of those who came to a verdict for all: a table of members, or why they cannot form a
// world. Whoever hosts a meeting has one.
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
  // The log names who is missing every progress_ms.
  Judge(int32_t world_size, Hosts hosts, Deadline deadline, int64_t progress_ms);

  // Nobody waits past the deadline of who is least patient.
  void hurry(Deadline deadline) noexcept { deadline_ = sooner(deadline_, deadline); }

  // Nothing while it makes sense to wait on. A conflict waits a while for the ranks that are on their way,
  // who should hear of it. `left`: came and went away, only for the report.
  std::optional<Verdict> decide(const std::vector<Claim>& came, const std::vector<Claim>& left);

  // When decide() may say something else though nobody came.
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
  int64_t conflict_since_ns_ = 0;  // 0: no conflict
};

}  // namespace dsc
