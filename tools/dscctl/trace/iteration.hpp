// A picture of the latest iteration of gradient reducers, all ranks below each other.
#pragma once

#include <string>

#include "dscctl/trace/dump.hpp"

namespace dscctl::trace {

// Returns SVG: for each reducer and rank a panel with a row per bucket, its gradients as ticks and its
// reduction as a bar. Panels of one reducer have one time axis. Empty if no dump has an iteration.
std::string draw_iterations(const Trace& trace);

}  // namespace dscctl::trace
