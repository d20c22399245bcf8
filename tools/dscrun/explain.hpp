// The commands of other launchers that do what the arguments of dscrun ask for.
#pragma once

#include <string>

#include "dscrun/plan.hpp"

namespace dscrun {

// Lines for a shell: a command of mpirun, of srun and of torchrun, and comments that say what each lacks.
std::string explain(const Options& options, const Plan& plan);

}  // namespace dscrun
