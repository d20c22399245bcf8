// Words and numbers for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dscctl::trace {

std::string ranks_text(std::vector<int> ranks);          // "rank 2"; "ranks 0, 1, 5-63"
std::string duration_text(int64_t ns);                   // "850 ns", "12.3 us", "4.20 s"
std::string count_text(int64_t count, const char* one);  // "1 rank", "12,000 ranks"

// A table with aligned columns; the first row is the head, and all columns but those of `left` are aligned
// right.
std::string table_text(const std::vector<std::vector<std::string>>& rows, const std::vector<size_t>& left);

}  // namespace dscctl::trace
