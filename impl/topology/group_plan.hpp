// Lists all groups that Megatron-LM or DeepSpeed creates for a mesh. The groups are in the order in which
// every rank must create them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "topology/mesh.hpp"

namespace dsc {

// Selects the framework and the groups to plan.
struct GroupPlanSettings {
  std::string_view style;             // "megatron" or "deepspeed"
  const RankMesh* experts = nullptr;  // mesh of the experts; null means ep 1 and the tp of the dense mesh
  std::span<const int32_t> cp_levels = {};
  int32_t instances = 1;  // number of instances of the distributed optimizer
  bool hybrid = false;
  int32_t virtual_stages = 1;
  int32_t rank = -1;  // list only the groups that contain this rank; -1: all groups
};

// A list of groups. Group g has the name names[g].
struct GroupPlan {
  std::vector<const char*> names;  // string literals
  std::vector<size_t> starts;      // group g is ranks[starts[g]] to ranks[starts[g + 1] - 1]
  std::vector<int32_t> ranks;
};

GroupPlan plan_groups(const RankMesh& mesh, const GroupPlanSettings& settings);

}  // namespace dsc
