// Writes the trace as Chrome trace events, which ui.perfetto.dev and chrome://tracing can show.
#pragma once

#include <ostream>
#include <vector>

#include "dscctl/trace/operations.hpp"

namespace dscctl::trace {

// Each rank is a process. Each group has a track, and messages have one or more tracks. Each message
// is an arrow.
void write_perfetto(std::ostream& out, const Trace& trace, const std::vector<Operation>& operations);

// Returns the time of the first event of a trace; 0 if there is none.
TimeNs first_time(const Trace& trace);

}  // namespace dscctl::trace
