// Writes the trace as one self-contained HTML file.
#pragma once

#include <ostream>

#include "dscctl/trace/report.hpp"

namespace dscctl::trace {

void write_timeline(std::ostream& out, const Report& report);

}  // namespace dscctl::trace
