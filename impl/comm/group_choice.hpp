// Pure functions by which every rank of the parent computes the members of a new group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dsc {

// The arguments of one rank in a split.
struct SplitChoice {
  int32_t color;  // -1: no group
  int32_t key;
};

// Returns the ranks of the parent with this color, ordered by key and then by rank; none for color -1.
// `choices` holds the SplitChoice of each rank.
std::vector<int32_t> members_of_color(const std::vector<std::byte>& choices, int32_t color);

// A list of ranks as a hash for comparison and as text for messages.
struct RankList {
  uint64_t hash;
  std::string text;
};

RankList rank_list(std::span<const int32_t> ranks);

}  // namespace dsc
