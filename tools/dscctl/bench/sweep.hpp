// Measures one operation or all of them, for several sizes and numbers of ranks, and shows the results.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dscctl::bench {

constexpr const char* kAll = "all";  // stands for all operations

struct Sweep {
  std::string operation;  // or kAll
  std::vector<int> ranks;
  std::vector<size_t> sizes;
  int budget_ms = 200;  // approximate time of the timed calls per case
  bool explain = false;
  bool as_json = false;
  std::string svg;  // file for a heat map; empty: none
};

// Prints text or JSON to stdout. Throws std::invalid_argument for wrong usage, before anything is measured,
// and std::runtime_error with the first message of the rank that failed.
void measure(const Sweep& sweep);

}  // namespace dscctl::bench
