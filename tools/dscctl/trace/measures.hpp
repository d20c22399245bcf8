// The arithmetic of a summary, as DeepSpeed's communication logger has it, with the group's size for the
// world's. libdsc/_summary.py holds the same for Python; both are tested with the same values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dscctl::trace {

struct Bandwidth {
  double algorithm_gbps = 0;  // Gbit/s of the data that a rank hands over or gets
  double bus_gbps = 0;        // Gbit/s that each rank's link would have to carry
};

// For `bytes` of one rank's part and a group of so many ranks. Without a duration there is no bandwidth: 0.
Bandwidth bandwidth(std::string_view operation, int64_t bytes, double duration_ms, int group_size);

std::string size_text(int64_t bytes);  // "1.5 KB" of 1,024 bytes each; "0B"

// The mean without the tenth with the lowest and the tenth with the highest values; 0 of none.
double trimmed_mean(std::vector<double> values);

}  // namespace dscctl::trace
