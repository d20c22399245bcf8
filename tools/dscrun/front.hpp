// The process whose number the user knows.
#pragma once

#include <functional>

#include "dscrun/options.hpp"
#include "dscrun/work.hpp"

namespace dscrun {

// Two processes share the work, so that no single SIGKILL leaves anything behind. The front process only
// passes signals on. The keeper, its child in a process group of its own, starts and supervises the ranks.
// Each inherits orphans of the job (PR_SET_CHILD_SUBREAPER): if the front process dies, the keeper ends the
// job; if the keeper dies, the ranks get SIGKILL from the kernel (PR_SET_PDEATHSIG) and the front process
// ends what they leave.
using WorkOfStart = std::function<Work(int restart_count)>;

int run_front(const Options& options, const WorkOfStart& work_of_start);

}  // namespace dscrun
