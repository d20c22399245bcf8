#include "dscctl/trace/lateness.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace dscctl::trace {
namespace {

struct Arrival {
  TimeNs time = 0;
  int rank = 0;
};

std::vector<Arrival> arrivals_of(const Operation& operation) {
  std::vector<Arrival> arrivals;
  for (const Participant& participant : operation.participants) {
    if (participant.entry == nullptr || !participant.entry->started) continue;
    if (participant.entry->failed()) return {};
    arrivals.push_back({*participant.entry->started, participant.rank});
  }
  std::sort(arrivals.begin(), arrivals.end(),
            [](const Arrival& a, const Arrival& b) { return a.time < b.time; });
  return arrivals;
}

using Waiters = std::map<int, std::set<int>>;  // for each awaited rank, the ranks that waited for it

void book(std::map<int, Lateness>& of_rank, Waiters& waiters, const Operation& operation,
          const std::vector<Arrival>& arrivals) {
  const Arrival& last = arrivals.back();
  int64_t waited = 0;
  for (const Arrival& arrival : arrivals) {
    Lateness& row = of_rank.at(arrival.rank);
    ++row.operations;
    row.mean_ns += arrival.time - arrivals.front().time;  // a sum, which is divided at the end
    waited += last.time - arrival.time;
    if (arrival.rank != last.rank) waiters[last.rank].insert(arrival.rank);
  }
  Lateness& row = of_rank.at(last.rank);
  const int64_t late_ns = last.time - arrivals.front().time;
  ++row.last;
  row.caused_ns += waited;
  if (row.worst != nullptr && late_ns <= row.worst_ns) return;
  row.worst_ns = late_ns;
  row.worst = &operation;
}

}  // namespace

std::vector<Lateness> measure_lateness(const Trace& trace, const std::vector<Operation>& operations) {
  std::map<int, Lateness> of_rank;
  Waiters waiters;
  for (const Dump& dump : trace.dumps) of_rank[dump.rank].rank = dump.rank;
  for (const Operation& operation : operations) {
    // Only a collective on the host makes all its ranks wait for each other.
    if (operation.is_message || operation.on_device()) continue;
    const std::vector<Arrival> arrivals = arrivals_of(operation);
    if (arrivals.size() > 1) book(of_rank, waiters, operation, arrivals);
  }
  std::vector<Lateness> rows;
  for (auto& [rank, row] : of_rank) {
    if (row.operations > 0) row.mean_ns /= row.operations;
    row.waiters = static_cast<int>(waiters[rank].size());
    rows.push_back(row);
  }
  return rows;
}

}  // namespace dscctl::trace
