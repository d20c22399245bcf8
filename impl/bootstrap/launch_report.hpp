// Describes in JSON what start-up would do in this environment.
#pragma once

#include <string>

#include "bootstrap/launcher.hpp"

namespace dsc {

std::string launch_report(const LaunchFindings& findings);

}  // namespace dsc
