// Schedules in a terminal: pictures of a given width, tables, critical paths.
#pragma once

#include <string>
#include <vector>

#include "dscctl/schedule/handle.hpp"

namespace dscctl::schedule {

// A picture of dsc_pipe_draw() in pieces of so many columns of time, one below the other; colours stay.
std::string folded(const std::string& picture, size_t columns);

// What each of them costs, a line each.
std::string comparison_of(const std::vector<Handle>& schedules, const std::vector<Priced>& prices);

// Six digits, and large values whole.
std::string shortened(double value);

// The operations that nothing could delay, a line each.
std::string critical_path_of(const Handle& schedule, const dsc_pipe_costs_t& costs);

}  // namespace dscctl::schedule
