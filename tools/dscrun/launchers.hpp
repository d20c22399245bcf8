// Uses other launchers to start one dscrun on every host.
#pragma once

#include <string>
#include <vector>

#include "dscrun/plan.hpp"

namespace dscrun {

// Returns the command of mpirun or srun that starts a dscrun on every host.
std::vector<std::string> node_launcher(const Options& options, const Plan& plan, int restart_count);

// Returns names of variables that ranks on other hosts get from this process. Values are left out, because
// they may be secrets.
std::vector<std::string> exported_names(const Options& options);

}  // namespace dscrun
