// Draws the latest iteration of each gradient reducer, for all ranks one below another.
#pragma once

#include <string>

#include "dscctl/trace/dump.hpp"

namespace dscctl::trace {

// Returns SVG. Each reducer and rank has a panel with a row per bucket. Gradients are ticks, and the
// reduction is a bar. All panels of a reducer have the same time axis. Returns an empty text if no dump
// contains an iteration.
std::string draw_iterations(const Trace& trace);

}  // namespace dscctl::trace
