// Starts a process whose output this process reads, and which dies with this process.
#pragma once

#include <sys/types.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "dscrun/unique_fd.hpp"

namespace dscrun {

// A process could not be started. dscrun should return `exit_code`.
struct StartError : std::runtime_error {
  StartError(const std::string& text, int exit_code) : std::runtime_error(text), exit_code(exit_code) {}
  int exit_code;
};

enum class Input { kNothing, kOurs, kPipe };

struct ProcessSpec {
  std::string name;  // for messages
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=VALUE, the complete environment
  Input input = Input::kNothing;
  pid_t group = 0;   // group to join; 0: the process leads a new group
  int kept_fd = -1;  // stays open in the process, in addition to the standard streams
};

struct Process {
  pid_t pid = 0;
  UniqueFd pidfd, out, err;  // out and err: the reading ends of its standard output and error
  UniqueFd in;               // the writing end of its standard input if that is a pipe
};

Process start_process(const ProcessSpec& spec);  // throws StartError

}  // namespace dscrun
