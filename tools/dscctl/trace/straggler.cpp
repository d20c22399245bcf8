// Finds ranks that often arrive last, so that the others lose much of their time.
#include <algorithm>
#include <set>
#include <string>

#include "dscctl/trace/findings.hpp"
#include "dscctl/trace/text.hpp"

namespace dscctl::trace {
namespace {

constexpr int64_t kLeastOperations = 5;  // with fewer operations, one rank may be last by chance
constexpr int64_t kLeastPercent = 10;  // of all the time; each other rank must lose at least this on average

// Returns the time from the first start of an operation to the last completion.
int64_t time_of_operations(const Trace& trace) {
  TimeNs first = 0, last = 0;
  for (const Dump& dump : trace.dumps) {
    for (const Entry& entry : dump.entries) {
      if (!entry.started || !entry.completed) continue;
      first = first == 0 ? *entry.started : std::min(first, *entry.started);
      last = std::max(last, *entry.completed);
    }
  }
  return last - first;
}

// Clocks of different hosts are not comparable, so they cannot show which rank arrived last.
bool have_one_clock(const Trace& trace) {
  std::set<std::string> hosts;
  for (const Dump& dump : trace.dumps) hosts.insert(dump.host);
  return hosts.size() < 2;
}

}  // namespace

std::vector<Finding> find_stragglers(const Trace& trace, const std::vector<Lateness>& lateness) {
  if (!have_one_clock(trace)) return {};
  const int64_t all_ns = time_of_operations(trace);
  std::vector<Finding> findings;
  for (const Lateness& row : lateness) {
    if (row.operations < kLeastOperations || 3 * row.last < 2 * row.operations || row.waiters == 0) continue;
    const int64_t lost_ns = row.caused_ns / row.waiters, percent = 100 * lost_ns / all_ns;
    if (percent < kLeastPercent) continue;
    findings.push_back({Kind::kStraggler,
                        "rank " + std::to_string(row.rank) + " arrived last at " + std::to_string(row.last) +
                            " of " + count_text(row.operations, "collective") +
                            "; each other rank waited for it " + duration_text(lost_ns) + " on average, " +
                            std::to_string(percent) + " % of the " + duration_text(all_ns) +
                            " from the first operation to the last",
                        {row.rank},
                        row.worst});
  }
  return findings;
}

}  // namespace dscctl::trace
