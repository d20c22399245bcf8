// Shows schedules in a terminal: pictures of a limited width, tables, and critical paths.
#pragma once

#include <string>
#include <vector>

#include "dscctl/schedule/handle.hpp"

namespace dscctl::schedule {

// Breaks a picture of dsc_pipe_draw() into pieces of this number of columns of time, one below another.
// Colors are kept.
std::string folded(const std::string& picture, size_t columns);

// Returns a table with one line for the costs of each schedule.
std::string comparison_of(const std::vector<Handle>& schedules, const std::vector<Priced>& prices);

// Formats a number with six digits; large numbers without decimals.
std::string shortened(double value);

// Returns the operations of the critical path, one per line. A delay of any of them delays the end.
std::string critical_path_of(const Handle& schedule, const dsc_pipe_costs_t& costs);

}  // namespace dscctl::schedule
