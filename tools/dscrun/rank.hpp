// One rank: its environment, its process, and how it ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "dscrun/job.hpp"
#include "dscrun/process.hpp"

namespace dscrun {

class Remote;

struct Rank {
  int number = 0;
  std::string name;  // "rank 3"
  // Rank 0 stays in the terminal's foreground group if it may read from the terminal. All other ranks lead
  // their own groups.
  bool in_front_group = false;
  Process process;           // for a rank on this host
  Remote* remote = nullptr;  // for a rank on another host: the connection to that host
  std::optional<int> wait_status;
  std::string lost;  // reason why its end was not seen; empty if it was
  std::chrono::steady_clock::duration lifetime{};

  bool running() const { return !wait_status; }
  bool failed() const { return wait_status && *wait_status != 0; }
  // Sends to the process group of the rank if the rank leads one, otherwise to the rank alone. Does nothing
  // after the end of the rank.
  void send_signal(int signal) const;
};

// Starts a rank on this host. `front_group`: the process group that rank 0 joins, or 0. Throws StartError.
Rank start_rank(const NodeJob& job, int number, pid_t front_group, bool reads_input);

}  // namespace dscrun
