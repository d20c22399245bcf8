// Other launchers as a means to start one dscrun on every host.
#pragma once

#include <string>
#include <vector>

#include "dscrun/plan.hpp"

namespace dscrun {

// mpirun or srun with arguments that start a dscrun on every host.
std::vector<std::string> node_launcher(const Options& options, const Plan& plan, int restart_count);

// Names of the variables that ranks on other hosts get from here; values may be secrets.
std::vector<std::string> exported_names(const Options& options);

}  // namespace dscrun
