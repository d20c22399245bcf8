// The direct children of this process. As a subreaper it also gets descendants whose parent has died.
#pragma once

#include <sys/types.h>

#include <string>

namespace dscrun {

// Sends a signal to every direct child. Only this process reaps them, so no process number can already belong
// to an unrelated process.
void signal_children(int signal);

// Kills all descendants of this process, generation by generation. Returns false if some still exist after
// the time limit.
bool kill_descendants(int limit_ms);

// Returns text such as "exited with code 3" or "died by signal 9 (Killed)". `wait_status` is the value from
// waitpid().
std::string describe_end(int wait_status);

// Returns the exit code as a shell reports it: the code itself, or 128 plus the signal.
int shell_code(int wait_status);

}  // namespace dscrun
