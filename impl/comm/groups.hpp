// Creates groups from a group. Every rank computes its members from the requests of all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/engine.hpp"

namespace dsc {

inline constexpr size_t kMostGroupNameBytes = 31;

// Collective among the ranks of `parent`. split_group() returns null for color -1, and create_group() returns
// null for a rank that is not listed.
std::shared_ptr<GroupEngine> split_group(GroupEngine& parent, int32_t color, int32_t key,
                                         const GroupOptions& options);
std::shared_ptr<GroupEngine> create_group(GroupEngine& parent, std::span<const int32_t> ranks,
                                          const GroupOptions& options);

// Returns the name of a shrunk group: "world/shrunk" for the first shrink of "world", and "world/shrunk2" for
// the next shrink of either group.
std::string shrunk_name(std::string_view parent, int number);

}  // namespace dsc
