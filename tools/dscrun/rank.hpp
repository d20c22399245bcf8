// One rank: its environment, its process, and how it ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "dscrun/options.hpp"
#include "dscrun/unique_fd.hpp"

namespace dscrun {

struct Rank {
  int number = 0;
  pid_t pid = 0;
  // Rank 0 stays in the terminal's foreground group when it may read from the terminal, else each leads its
  // own.
  bool in_front_group = false;
  UniqueFd pidfd, out, err;  // out and err: the reading ends of its standard output and error
  std::optional<int> wait_status;
  std::chrono::steady_clock::duration lifetime{};

  bool running() const { return !wait_status; }
  bool failed() const { return wait_status && *wait_status != 0; }
  void send_signal(
      int signal) const;  // to its whole process group if it leads one; nothing once it has ended
};

// A rank could not be started; `exit_code` is what dscrun should return.
struct StartError : std::runtime_error {
  StartError(const std::string& text, int exit_code) : std::runtime_error(text), exit_code(exit_code) {}
  int exit_code;
};

// Starts the ranks of one run, which all carry one fresh job id.
class RankStarter {
 public:
  // `front_group`: the process group that rank 0 joins, or 0.
  RankStarter(const Options& options, pid_t front_group);

  Rank start(int number) const;  // throws StartError

 private:
  const Options& options_;
  pid_t front_group_;
  std::string job_id_;
};

}  // namespace dscrun
