// Groups made from a group: every rank computes its members from what all ranks asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "comm/engine.hpp"

namespace dsc {

// Collective among the ranks of `parent`. Return null for color -1 and for a rank that is not listed.
std::shared_ptr<GroupEngine> split_group(GroupEngine& parent, int32_t color, int32_t key,
                                         const GroupOptions& options);
std::shared_ptr<GroupEngine> create_group(GroupEngine& parent, std::span<const int32_t> ranks,
                                          const GroupOptions& options);

}  // namespace dsc
