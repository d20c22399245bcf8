// Measures which ranks arrive last, how often, and how long others wait for them.
#pragma once

#include <cstdint>
#include <vector>

#include "dscctl/trace/operations.hpp"

namespace dscctl::trace {

struct Lateness {
  int rank = 0;
  int64_t operations = 0;            // collectives that this rank and at least one other rank started
  int64_t last = 0;                  // number of collectives in which it arrived last
  int64_t caused_ns = 0;             // total time that all other ranks waited for it in these
  int waiters = 0;                   // number of ranks that waited for it
  int64_t mean_ns = 0;               // average time between the first arrival and its own
  int64_t worst_ns = 0;              // the longest such time among collectives in which it arrived last
  const Operation* worst = nullptr;  // null: it never arrived last
};

// Returns one entry per rank with a dump, in the order of ranks. Operations that failed are not counted.
std::vector<Lateness> measure_lateness(const Trace& trace, const std::vector<Operation>& operations);

}  // namespace dscctl::trace
