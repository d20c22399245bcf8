// What the command line asks for.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace dscrun {

// Exit codes of dscrun itself; those from 125 on are the ones that env(1) and timeout(1) use.
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
  std::vector<int> ranks;  // of every host, or one number for each; empty: not given
  int nodes = 0;           // 0: not given
  std::string node_rank;   // a number, "auto", or empty: not given
  std::string node_list;   // names of all hosts in order, "a,b": for --node-rank auto
  std::string master_addr;
  int port = 29500;
  std::string job_id;
  std::string host_file, include, exclude;
  std::string start_with;  // "ssh", "mpirun", "srun", or empty
  std::string ssh_command = "ssh -x -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5";
  std::string remote_dscrun;           // empty: the path of this one
  std::vector<std::string> extra_env;  // NAME=VALUE
  std::vector<std::string> command;
  Millis grace{5000};
  Millis lost_after{60'000};  // silence of the connection after which a dscrun elsewhere ends
  std::optional<Millis> timeout;
  bool keep_going = false;
  int allowed_failures = 0;  // so many ranks may fail without ending the run or making it a failure
  int restarts = 0;
  int restart_count = 0;  // of the dscrun that starts this one
  bool prefix = true;
  bool color = true;  // where it is a terminal
  bool explain = false;
  bool dry_run = false;
  bool as_node = false;  // another dscrun says on standard input what to do
};

// The options, or the exit code after help or an error was printed.
std::variant<Options, int> parse_options(int argc, char** argv);

}  // namespace dscrun
