// Who is in a new group, as every rank of the parent works it out. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dsc {

// What a rank shows in a split.
struct SplitChoice {
  int32_t color;  // -1: no group
  int32_t key;
};

// Ranks of the parent with this color, in the order of their keys, then of their ranks. `choices` holds a
// SplitChoice of each rank.
std::vector<int32_t> members_of_color(const std::vector<std::byte>& choices, int32_t color);

// A list of ranks as it is compared, and as a mismatch shows it.
struct RankList {
  uint64_t hash;
  std::string text;
};

RankList rank_list(std::span<const int32_t> ranks);

}  // namespace dsc
