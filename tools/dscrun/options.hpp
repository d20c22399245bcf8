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
  int ranks = 1;
  int port = 29500;
  std::vector<std::string> command;
  std::vector<std::string> extra_env;  // NAME=VALUE
  Millis grace{5000};
  std::optional<Millis> timeout;
  bool keep_going = false;
  int allowed_failures = 0;  // so many ranks may fail without ending the run or making it a failure
  bool prefix = true;
};

// The options, or the exit code after help or an error was printed.
std::variant<Options, int> parse_options(int argc, char** argv);

}  // namespace dscrun
