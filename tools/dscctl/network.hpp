// What messages and all-reduces cost here: written by `dscctl bench`, read by `dscctl schedule` and `plan`.
#pragma once

#include <string>
#include <vector>

#include "dscctl/bench/fit.hpp"

namespace dscctl {

// time = latency + bytes / bandwidth, with so many ranks.
struct NetworkLine {
  int ranks = 0;
  double latency_us = 0;
  double bytes_per_us = 0;   // 0: unlimited
  double largest_error = 0;  // of the fit, relative
  std::vector<bench::Measured> measured;
};

struct NetworkFile {
  std::vector<NetworkLine> messages;     // between two neighbours
  std::vector<NetworkLine> all_reduces;  // bytes are those of a rank's buffer
};

NetworkLine line_of(int ranks, const std::vector<bench::Measured>& measured);

// Measured with a number of ranks nearest to this one, by their ratio; of two the larger. There is one or
// more.
const NetworkLine& nearest(const std::vector<NetworkLine>& lines, int ranks);

std::string network_text(const NetworkFile& network);
void write_network(const NetworkFile& network, const std::string& path);
// Both throw std::invalid_argument with the file and what is wrong.
NetworkFile read_network(const std::string& path);

}  // namespace dscctl
