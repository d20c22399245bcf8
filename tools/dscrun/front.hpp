// The front process of dscrun, whose process number the user knows.
#pragma once

#include <functional>

#include "dscrun/options.hpp"
#include "dscrun/work.hpp"

namespace dscrun {

// Two processes share the work, so that killing one of them with SIGKILL leaves nothing behind. The front
// process only passes signals on. The keeper, its child in a separate process group, starts and supervises
// the ranks. Each of the two inherits orphans of the job (PR_SET_CHILD_SUBREAPER). If the front process dies,
// the keeper ends the job. If the keeper dies, the kernel kills the ranks (PR_SET_PDEATHSIG), and the front
// process ends the processes that they leave.
using WorkOfStart = std::function<Work(int restart_count)>;

int run_front(const Options& options, const WorkOfStart& work_of_start);

}  // namespace dscrun
