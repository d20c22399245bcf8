// The trace as Chrome trace events, which ui.perfetto.dev and chrome://tracing show.
#pragma once

#include <ostream>
#include <vector>

#include "dscctl/trace/operations.hpp"

namespace dscctl::trace {

// One process per rank; a track per group and one or more for messages; an arrow per message.
void write_perfetto(std::ostream& out, const Trace& trace, const std::vector<Operation>& operations);

// The first moment of a trace; 0 without any.
TimeNs first_time(const Trace& trace);

}  // namespace dscctl::trace
