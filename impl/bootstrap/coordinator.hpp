// Makes a decision from the hellos of the ranks that have arrived: either a table of members, or the reason
// why they cannot form a world. The rank that hosts a meeting owns one Coordinator.
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
  // While ranks are missing, decide() logs them every `progress_ms` milliseconds.
  Coordinator(int32_t world_size, Hosts hosts, Deadline deadline, int64_t progress_ms);

  // Called with the deadline of each rank, because the coordinator waits only until the earliest of them.
  void shorten_deadline(Deadline deadline) noexcept { deadline_ = sooner(deadline_, deadline); }

  // Returns nullopt while more ranks should be awaited. After a conflict the coordinator waits a little
  // longer, so that ranks that are about to arrive also learn of the conflict. `came` are the hellos of the
  // ranks that are present, and `left` those of ranks that arrived and left. The latter appear only in the
  // error.
  std::optional<MeetingOutcome> decide(const std::vector<Hello>& came, const std::vector<Hello>& left);

  // Returns the time after which decide() must be called again even if no rank arrives.
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
