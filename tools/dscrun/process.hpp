// Starts one process whose output comes to us and which dies with us.
#pragma once

#include <sys/types.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "dscrun/unique_fd.hpp"

namespace dscrun {

// Something could not be started; `exit_code` is what dscrun should return.
struct StartError : std::runtime_error {
  StartError(const std::string& text, int exit_code) : std::runtime_error(text), exit_code(exit_code) {}
  int exit_code;
};

enum class Input { kNothing, kOurs, kPipe };

struct ProcessSpec {
  std::string name;  // for messages
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=VALUE, all of it
  Input input = Input::kNothing;
  pid_t group = 0;   // to join; 0: leads its own
  int kept_fd = -1;  // stays open in it, beside the standard streams
};

struct Process {
  pid_t pid = 0;
  UniqueFd pidfd, out, err;  // out and err: the reading ends of its standard output and error
  UniqueFd in;               // the writing end of its standard input if that is a pipe
};

Process start_process(const ProcessSpec& spec);  // throws StartError

}  // namespace dscrun
