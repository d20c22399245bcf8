// What start-up would do here, as JSON.
#pragma once

#include <string>

#include "bootstrap/launcher.hpp"

namespace dsc {

std::string launch_report(const LaunchFindings& findings);

}  // namespace dsc
