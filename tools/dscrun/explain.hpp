// Shows the commands of other launchers that correspond to the arguments of dscrun.
#pragma once

#include <string>

#include "dscrun/plan.hpp"

namespace dscrun {

// Returns lines for a shell: commands of mpirun, srun and torchrun, and comments with what each command
// lacks.
std::string explain(const Options& options, const Plan& plan);

}  // namespace dscrun
