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
  // Rank 0 stays in the terminal's foreground group when it may read from the terminal, else each leads its
  // own.
  bool in_front_group = false;
  Process process;           // of this host
  Remote* remote = nullptr;  // or the connection to its own
  std::optional<int> wait_status;
  std::string lost;  // why nobody saw its end
  std::chrono::steady_clock::duration lifetime{};

  bool running() const { return !wait_status; }
  bool failed() const { return wait_status && *wait_status != 0; }
  void send_signal(
      int signal) const;  // to its whole process group if it leads one; nothing once it has ended
};

// Starts a rank on this host. `front_group`: the process group that rank 0 joins, or 0. Throws StartError.
Rank start_rank(const NodeJob& job, int number, pid_t front_group, bool reads_input);

}  // namespace dscrun
