// Summarizes one rank's operations by kind, size and group: how many there were, how long they took, and
// their bandwidth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dscctl/trace/operations.hpp"
#include "dscctl/trace/reader.hpp"

namespace dscctl::trace {

struct SummaryRow {
  std::string operation;
  int64_t bytes = 0;  // size of one rank's part
  size_t group = 0;
  int64_t count = 0;
  double total_ms = 0;
  double average_ms = 0;  // averages exclude a tenth of the values at each end
  double algorithm_gbps = 0;
  double bus_gbps = 0;
  // Time beyond that of the fastest rank: how long this rank waited for the others.
  double straggler_total_ms = 0;
  double straggler_average_ms = 0;
};

// Returns the completed operations of a rank that has a dump, ordered by operation, bytes and group.
std::vector<SummaryRow> summarize(const Trace& trace, const std::vector<Operation>& operations, int rank);

std::string summary_text(const Trace& trace, const std::vector<SummaryRow>& rows, int rank);
Json summary_json(const Trace& trace, const std::vector<SummaryRow>& rows, int rank);

}  // namespace dscctl::trace
