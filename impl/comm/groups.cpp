#include "comm/groups.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "comm/gather.hpp"
#include "comm/group_ids.hpp"

namespace dsc {
namespace {

constexpr uint64_t kChoiceTag = 0, kMakeTag = 1;

// The arguments of one rank in a split.
struct SplitChoice {
  int32_t color;  // -1 means no group
  int32_t key;
};

// Returns the ranks of the parent with this color, ordered by key and then by rank; none for color -1.
std::vector<int32_t> members_of_color(const std::vector<SplitChoice>& choices, int32_t color) {
  std::vector<std::pair<int32_t, int32_t>> chosen;  // pairs of key and rank
  for (size_t rank = 0; color >= 0 && rank < choices.size(); ++rank)
    if (choices[rank].color == color) chosen.emplace_back(choices[rank].key, static_cast<int32_t>(rank));
  std::ranges::sort(chosen);
  std::vector<int32_t> members;
  members.reserve(chosen.size());
  for (const auto& [key, rank] : chosen) members.push_back(rank);
  return members;
}

std::shared_ptr<GroupEngine> make_group(GroupEngine& parent, NewGroup wanted, const GroupOptions& options) {
  wanted.name = options.name.empty() ? parent.state.child_name() : options.name;
  wanted.name.resize(std::min(wanted.name.size(), kMostGroupNameBytes));
  wanted.timeout_ms = options.timeout_ms > 0 ? options.timeout_ms : parent.timeout_ms();
  auto made = parent.make_group(wanted);
  if (made) made->state.nonfinite->set_check(parent.state.nonfinite->check());
  return made;
}

}  // namespace

std::shared_ptr<GroupEngine> split_group(GroupEngine& parent, int32_t color, int32_t key,
                                         const GroupOptions& options) {
  const auto choices = gather_all(parent, OpKind::kSplit, kChoiceTag, SplitChoice{color, key});
  NewGroup wanted{.kind = OpKind::kSplit, .tag = kMakeTag};
  wanted.members = members_of_color(choices, color);
  wanted.id = mix_id(parent.state.next_id(), static_cast<uint32_t>(color));
  return make_group(parent, std::move(wanted), options);
}

std::shared_ptr<GroupEngine> create_group(GroupEngine& parent, std::span<const int32_t> ranks,
                                          const GroupOptions& options) {
  NewGroup wanted{.kind = OpKind::kCreateGroup, .tag = ranks.size()};
  for (const int32_t rank : ranks) {
    wanted.tag = mix_id(wanted.tag, static_cast<uint32_t>(rank));
    wanted.note += (wanted.note.empty() ? "ranks " : ", ") + std::to_string(rank);
  }
  wanted.members.assign(ranks.begin(), ranks.end());
  wanted.id = parent.state.next_id();
  return make_group(parent, std::move(wanted), options);
}

std::string shrunk_name(std::string_view parent, int number) {
  constexpr std::string_view kMark = "/shrunk", kDigits = "0123456789";
  const size_t mark = parent.rfind(kMark);
  if (mark != parent.npos && parent.find_first_not_of(kDigits, mark + kMark.size()) == parent.npos)
    parent = parent.substr(0, mark);
  const std::string end = std::string(kMark) + (number > 1 ? std::to_string(number) : "");
  return std::string(parent.substr(0, kMostGroupNameBytes - end.size())) + end;
}

}  // namespace dsc
