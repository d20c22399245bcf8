#include "comm/group_choice.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/group_ids.hpp"

namespace dsc {

std::vector<int32_t> members_of_color(const std::vector<std::byte>& choices, int32_t color) {
  if (color < 0) return {};
  std::vector<std::pair<int32_t, int32_t>> chosen;  // key, rank
  for (size_t rank = 0; rank < choices.size() / sizeof(SplitChoice); ++rank) {
    SplitChoice choice;
    std::memcpy(&choice, choices.data() + rank * sizeof choice, sizeof choice);
    if (choice.color == color) chosen.emplace_back(choice.key, static_cast<int32_t>(rank));
  }
  std::ranges::sort(chosen);
  std::vector<int32_t> members;
  members.reserve(chosen.size());
  for (const auto& [key, rank] : chosen) members.push_back(rank);
  return members;
}

RankList rank_list(std::span<const int32_t> ranks) {
  RankList list{ranks.size(), ""};
  for (const int32_t rank : ranks) {
    list.hash = mix_id(list.hash, static_cast<uint32_t>(rank));
    list.text += (list.text.empty() ? "ranks " : ", ") + std::to_string(rank);
  }
  return list;
}

}  // namespace dsc
