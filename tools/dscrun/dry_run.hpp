// Prints what dscrun would start on which host.
#pragma once

#include <string>

#include "dscrun/plan.hpp"

namespace dscrun {

std::string dry_run(const Options& options, const Plan& plan);  // one JSON object

}  // namespace dscrun
