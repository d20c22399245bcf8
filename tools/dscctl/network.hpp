// The costs of messages and all-reduces: written by `dscctl bench`, read by `dscctl schedule` and `dscctl
// plan`.
#pragma once

#include <string>
#include <vector>

#include "dscctl/bench/fit.hpp"

namespace dscctl {

// time = latency + bytes / bandwidth, with this number of ranks.
struct NetworkLine {
  int ranks = 0;
  double latency_us = 0;
  double bytes_per_us = 0;   // 0: unlimited
  double largest_error = 0;  // relative error of the fit
  std::vector<bench::Measured> measured;
};

struct NetworkFile {
  std::vector<NetworkLine> messages;     // between two neighboring ranks
  std::vector<NetworkLine> all_reduces;  // `bytes` is the size of one rank's buffer
};

NetworkLine line_of(int ranks, const std::vector<bench::Measured>& measured);

// Returns the line whose number of ranks is nearest to `ranks` by their ratio; the larger of two equally near
// ones. `lines` must not be empty.
const NetworkLine& nearest(const std::vector<NetworkLine>& lines, int ranks);

std::string network_text(const NetworkFile& network);
// Reports the file on stderr. Throws std::runtime_error if it cannot be written.
void write_network(const NetworkFile& network, const std::string& path);
// Throws std::invalid_argument with the file's name and the error.
NetworkFile read_network(const std::string& path);

}  // namespace dscctl
