// Schedules as one page that needs nothing else: hover shows an operation, sliders price them again.
#pragma once

#include <string>
#include <vector>

#include "dscctl/schedule/handle.hpp"

namespace dscctl::schedule {

// Throws for more operations than a page can show.
std::string html_of(const std::vector<Handle>& schedules, const Costs& costs);

}  // namespace dscctl::schedule
