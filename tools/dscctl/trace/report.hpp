// Reports the merged dumps as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "dscctl/trace/findings.hpp"
#include "dscctl/trace/lateness.hpp"
#include "dscctl/trace/reader.hpp"

namespace dscctl::trace {

struct Report {
  const Trace& trace;
  const std::vector<Operation>& operations;
  std::vector<Finding> findings;
  std::vector<Lateness> lateness;
};

Report make_report(const Trace& trace, const std::vector<Operation>& operations, const Rules& rules);

// With `all`, shows every finding instead of the first few of each kind.
std::string report_text(const Report& report, bool all, bool colored);
Json report_json(const Report& report);

}  // namespace dscctl::trace
