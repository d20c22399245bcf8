// The options of dscrun's command line.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace dscrun {

// Exit codes of dscrun itself. Those from 125 on are the same as in env(1) and timeout(1).
enum ExitCode {
  kOk = 0,
  kUsage = 2,
  kTimedOut = 124,
  kOwnFailure = 125,
  kNotExecutable = 126,
  kNotFound = 127
};

using Millis = std::chrono::milliseconds;

struct Options {
  std::vector<int> ranks;  // one number for all hosts, or one number per host; empty: not given
  int nodes = 0;           // 0: not given
  std::string node_rank;   // a number or "auto"; empty: not given
  std::string node_list;   // names of all hosts in order, such as "a,b", for --node-rank auto
  std::string master_addr;
  int port = 29500;
  std::string job_id;
  std::string host_file, include, exclude;
  std::string start_with;  // "ssh", "mpirun", "srun", or empty
  std::string ssh_command = "ssh -x -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5";
  std::string remote_dscrun;           // empty: the path of this dscrun
  std::vector<std::string> extra_env;  // NAME=VALUE
  std::vector<std::string> command;
  Millis grace{5000};
  Millis lost_after{60'000};  // a dscrun on another host ends when its connection has been silent this long
  std::optional<Millis> timeout;
  bool keep_going = false;
  int allowed_failures = 0;  // number of ranks that may fail without ending or failing the job
  int restarts = 0;
  int restart_count = 0;  // restart count of the dscrun that started this one
  bool prefix = true;
  bool color = true;  // only if the output is a terminal
  bool explain = false;
  bool dry_run = false;
  bool as_node = false;  // another dscrun sends the job on standard input
};

// Returns the options, or the exit code if help or an error was printed.
std::variant<Options, int> parse_options(int argc, char** argv);

}  // namespace dscrun
