// Texts about calls and ranks for messages of all engines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtype/reduce.hpp"

namespace dsc {

// Returns a text such as "rank 1: broadcast(root 0, f32, 1000), ranks 0, 2: all_reduce(sum, f32, 1000)".
std::string describe_difference(const std::vector<std::string>& calls);
// Returns a text such as "the input of rank 2 is a NaN or infinite at element 17; 5 elements of all inputs
// are NaN or infinite".
std::string describe_found(const NonFinite& found);
std::string list_ranks(const std::vector<int32_t>& ranks);

}  // namespace dsc
