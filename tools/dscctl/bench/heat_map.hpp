// Draws measured times as a heat map in SVG.
#pragma once

#include <string>
#include <vector>

#include "dscctl/bench/measure.hpp"

namespace dscctl::bench {

struct SweepRows {
  int ranks = 0;
  std::vector<Row> rows;
};

// Two panels for each number of ranks, plain and shared buffers. A panel has a row for each operation that
// moves data, and a column for each size. A cell contains the time, and its color is the bandwidth.
std::string heat_map(const std::vector<SweepRows>& all);

}  // namespace dscctl::bench
