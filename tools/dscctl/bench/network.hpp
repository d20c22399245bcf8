// Measures what messages and all-reduces take on this machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dscctl/network.hpp"

namespace dscctl::bench {

// Throws std::invalid_argument for fewer than two different sizes, which no line can be fitted to.
std::vector<size_t> network_sizes(const std::string& text);

// With each of these numbers of ranks, which are even. Throws std::runtime_error when a rank fails.
NetworkFile measure_network(const std::vector<int>& ranks, const std::vector<size_t>& sizes, int budget_ms);

}  // namespace dscctl::bench
