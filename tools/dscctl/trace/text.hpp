// Formats ranks and numbers for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dscctl::trace {

std::string ranks_text(std::vector<int> ranks);          // such as "rank 2" or "ranks 0, 1, 5-63"
std::string duration_text(int64_t ns);                   // such as "850 ns", "12.3 us", "4.20 s"
std::string count_text(int64_t count, const char* one);  // such as "1 rank", "12,000 ranks"

// Returns a table with aligned columns. The first row is the header. Columns in `left` are aligned to the
// left, and all others to the right.
std::string table_text(const std::vector<std::vector<std::string>>& rows, const std::vector<size_t>& left);

}  // namespace dscctl::trace
