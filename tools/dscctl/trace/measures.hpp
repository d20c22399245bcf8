// Computes the numbers of a summary as DeepSpeed's communication logger does, but with the size of the group
// instead of the world size. libdsc/_summary.py computes the same in Python; both are tested with the same
// values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dscctl::trace {

struct Bandwidth {
  double algorithm_gbps = 0;  // Gbit/s of the data that a rank sends or receives
  double bus_gbps = 0;        // Gbit/s that each rank's link must carry
};

// Returns the bandwidth for `bytes` of one rank's part. If the duration is 0, the bandwidth is 0.
Bandwidth bandwidth(std::string_view operation, int64_t bytes, double duration_ms, int group_size);

std::string size_text(int64_t bytes);  // such as "1.5 KB", where a KB is 1,024 bytes; "0B"

// Returns the mean without the lowest tenth and the highest tenth of the values; 0 if there are no values.
double trimmed_mean(std::vector<double> values);

}  // namespace dscctl::trace
