// Measures how long messages and all-reduces take on this machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dscctl/network.hpp"

namespace dscctl::bench {

// Throws std::invalid_argument if there are fewer than two different sizes, because no line can be fitted
// then.
std::vector<size_t> network_sizes(const std::string& text);

// Measures with each of these numbers of ranks, which must be even. Throws std::runtime_error if a rank
// fails.
NetworkFile measure_network(const std::vector<int>& ranks, const std::vector<size_t>& sizes, int budget_ms);

}  // namespace dscctl::bench
