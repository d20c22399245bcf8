// Decides from the hellos of the ranks that have arrived: a table of members, or the reason why they cannot
// form a world. The rank that hosts a meeting owns one Coordinator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/hello.hpp"
#include "bootstrap/meeting_wire.hpp"

namespace dsc {

class Coordinator {
 public:
  // Every progress_ms the missing ranks are logged.
  Coordinator(int32_t world_size, Hosts hosts, Deadline deadline, int64_t progress_ms);

  // The earliest deadline of all ranks limits the wait.
  void shorten_deadline(Deadline deadline) noexcept { deadline_ = sooner(deadline_, deadline); }

  // Returns nullopt while waiting makes sense. After a conflict it waits a little, so that ranks that are
  // about to arrive learn of it too. `left` are ranks that arrived and left; they are only mentioned in the
  // error.
  std::optional<MeetingOutcome> decide(const std::vector<Hello>& came, const std::vector<Hello>& left);

  // Returns when decide() may have another result even if no rank arrives.
  Deadline next_look() const noexcept;

 private:
  MeetingOutcome timed_out(const std::vector<Hello>& came, const std::vector<Hello>& left) const;
  void log_progress(const std::vector<Hello>& came);

  const int32_t world_size_;
  const Hosts hosts_;
  const int64_t progress_ns_;
  const int64_t start_ns_;
  Deadline deadline_;
  int64_t next_log_ns_;
  int64_t conflict_since_ns_ = 0;  // 0 if there is no conflict
};

}  // namespace dsc
