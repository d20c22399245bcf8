// Who comes last, how often, and what that costs the others.
#pragma once

#include <cstdint>
#include <vector>

#include "dscctl/trace/operations.hpp"

namespace dscctl::trace {

struct Lateness {
  int rank = 0;
  int64_t operations = 0;            // collectives in which this rank and another one showed up
  int64_t last = 0;                  // in so many of them it was the last
  int64_t caused_ns = 0;             // what all others together waited for it then
  int waiters = 0;                   // those others
  int64_t mean_ns = 0;               // how long after the first one it came, on average
  int64_t worst_ns = 0;              // the same at its worst, among those where it was last
  const Operation* worst = nullptr;  // null: it was never last
};

// One per rank with a dump, in the order of ranks. Operations that failed do not count.
std::vector<Lateness> measure_lateness(const Trace& trace, const std::vector<Operation>& operations);

}  // namespace dscctl::trace
