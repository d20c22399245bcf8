// The direct children of this process, among them what a subreaper inherits when a descendant's parent dies.
#pragma once

#include <sys/types.h>

#include <string>

namespace dscrun {

// Sends a signal to every direct child. Only this process reaps them, so no number can have passed to a
// stranger.
void signal_children(int signal);

// Kills everything below this process, generation by generation; false if something was left when time ran
// out.
bool kill_descendants(int limit_ms);

// "exited with code 3" or "died by signal 9 (Killed)"; `wait_status` is what waitpid() stored.
std::string describe_end(int wait_status);

// The code a shell would give: the exit code, or 128 plus the signal.
int shell_code(int wait_status);

}  // namespace dscrun
