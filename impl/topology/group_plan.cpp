#include "topology/group_plan.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "base/error.hpp"
#include "topology/derived.hpp"
#include "topology/names.hpp"

namespace dsc {
namespace {

// Returns the groups along these axes. An axis that the mesh does not have counts as an axis of size 1.
MeshGroups groups_of(const RankMesh& mesh, std::initializer_list<std::string_view> names) {
  std::vector<size_t> axes;
  for (const std::string_view name : names)
    if (mesh.find(name)) axes.push_back(mesh.axis(name));
  return mesh.groups(axes);
}

int32_t size_along(const RankMesh& mesh, std::string_view name) {
  const MeshAxis* axis = mesh.find(name);
  return axis ? axis->size : 1;
}

// Collects the groups of a plan.
class Planner {
 public:
  explicit Planner(int32_t rank) : rank_(rank) { plan_.starts.push_back(0); }

  void add(const char* name, const std::vector<int32_t>& ranks) {
    if (rank_ >= 0 && std::ranges::find(ranks, rank_) == ranks.end()) return;
    plan_.names.push_back(name);
    plan_.ranks.insert(plan_.ranks.end(), ranks.begin(), ranks.end());
    plan_.starts.push_back(plan_.ranks.size());
  }

  // Adds all groups. If the plan is for a single rank, adds only the group of this rank, which is computed
  // without a search.
  void add_all(const char* name, const MeshGroups& groups) {
    for_each(groups, [&](const RankLists& lists, size_t index) { add(name, lists.list(index)); });
  }

  // Calls body(lists, index) for all groups or, if the plan is for a single rank, only for the group of this
  // rank.
  template <typename Body>
  void for_each(const MeshGroups& groups, Body&& body) const {
    const RankLists lists = lists_of(groups);
    if (rank_ >= 0) return body(lists, static_cast<size_t>(groups.position(rank_).group));
    for (size_t index = 0; index < lists.count; ++index) body(lists, index);
  }

  GroupPlan take() { return std::move(plan_); }
  int32_t rank() const noexcept { return rank_; }

 private:
  GroupPlan plan_;
  int32_t rank_;
};

RankLists single(std::vector<int32_t> ranks) {
  const size_t size = ranks.size();
  return {1, size, [ranks = std::move(ranks)](size_t, size_t member) { return ranks[member]; }};
}

// Divides one list into levels, and adds the lists of each level.
void add_levels(Planner& plan, std::initializer_list<const char*> names, const std::vector<int32_t>& list,
                std::span<const int32_t> sizes) {
  for (size_t level = 0; level < sizes.size(); ++level) {
    const RankLists lists = level_lists(single(list), sizes, level);
    for (size_t index = 0; index < lists.count; ++index)
      plan.add(names.begin()[std::min(level, names.size() - 1)], lists.list(index));
  }
}

void add_slices(Planner& plan, const char* name, const std::vector<int32_t>& list, size_t length) {
  for (size_t start = 0; start < list.size(); start += length)
    plan.add(name, {list.begin() + static_cast<std::ptrdiff_t>(start),
                    list.begin() + static_cast<std::ptrdiff_t>(std::min(start + length, list.size()))});
}

// ---- Megatron-LM ----

int32_t part_of(int32_t whole, int32_t instances, const char* what) {
  if (whole % instances != 0)
    fail(DSC_ERR_INVALID_ARG, "%s is %d, expected a multiple of the %d instances of the optimizer", what,
         whole, instances);
  return whole / instances;
}

void check_megatron(const RankMesh& dense, const RankMesh& experts, const GroupPlanSettings& settings) {
  if (!dense.has_order())
    fail(DSC_ERR_INVALID_ARG, "the mesh has no order, expected one such as \"tp-cp-ep-dp-pp\"");
  if (experts.size() != dense.size() || experts.first_rank() != dense.first_rank())
    fail(DSC_ERR_INVALID_ARG, "the experts' mesh has %d ranks from %d, expected the dense one's %d from %d",
         experts.size(), experts.first_rank(), dense.size(), dense.first_rank());
  if (settings.instances < 1)
    fail(DSC_ERR_INVALID_ARG, "instances is %d, expected 1 or more", settings.instances);
  if (settings.virtual_stages < 1)
    fail(DSC_ERR_INVALID_ARG, "virtual_stages is %d, expected 1 or more", settings.virtual_stages);
  if (settings.virtual_stages > 1 && size_along(dense, "pp") < 2)
    fail(DSC_ERR_INVALID_ARG, "virtual_stages is %d and pp 1, expected pp above 1 for more than one",
         settings.virtual_stages);
}

void add_data_parallel(Planner& plan, const RankMesh& dense, const GroupPlanSettings& settings) {
  const MeshGroups with_cp = groups_of(dense, {"dp", "cp"});
  const int32_t part = part_of(with_cp.size(), settings.instances, "dp x cp");
  plan.for_each(with_cp, [&](const RankLists& lists, size_t index) {
    const std::vector<int32_t> list = lists.list(index);
    plan.add("dp_cp", list);
    if (settings.instances > 1) add_slices(plan, "intra_dp_cp", list, static_cast<size_t>(part));
    if (!settings.hybrid) return;
    for (const int32_t size : hybrid_sizes(static_cast<int32_t>(list.size())))
      add_slices(plan, "hybrid_dp_cp", list, static_cast<size_t>(size));
  });
  plan.add_all("dp", groups_of(dense, {"dp"}));
}

// Adds the groups of dense layers in Megatron-LM's order.
void add_dense(Planner& plan, const RankMesh& dense, const GroupPlanSettings& settings) {
  plan.add_all("gtp", groups_of(dense, {}));
  add_data_parallel(plan, dense, settings);
  plan.for_each(groups_of(dense, {"cp"}), [&](const RankLists& lists, size_t index) {
    plan.add("cp", lists.list(index));
    add_levels(plan, {"hcp"}, lists.list(index), settings.cp_levels);
  });
  plan.add_all("mp", groups_of(dense, {"tp", "pp"}));
  plan.add_all("tp", groups_of(dense, {"tp"}));
  plan.for_each(groups_of(dense, {"pp"}), [&](const RankLists& lists, size_t index) {
    const std::vector<int32_t> list = lists.list(index);
    plan.add("pp", list);
    plan.add("embd", picked_lists(single(list), std::initializer_list<int32_t>{0, -1}).list(0));
    plan.add("pos_embd", {list.front()});
  });
  plan.add_all("tp_dp_cp", groups_of(dense, {"tp", "dp", "cp"}));
  plan.add_all("tp_dp", groups_of(dense, {"tp", "dp"}));
  plan.add_all("tp_cp", groups_of(dense, {"tp", "cp"}));
}

// Each instance of the distributed optimizer owns a consecutive range of lists. Each list contains all ranks
// of tp x ep x pp.
void add_instances(Planner& plan, const RankMesh& experts, size_t lists_each) {
  const RankLists lists = lists_of(groups_of(experts, {"tp", "ep", "pp"}));
  std::vector<int32_t> ranks;
  for (size_t index = 0; index < lists.count; ++index) {
    const std::vector<int32_t> list = lists.list(index);
    ranks.insert(ranks.end(), list.begin(), list.end());
    if ((index + 1) % lists_each != 0) continue;
    plan.add("intra_dist_opt", ranks);
    ranks.clear();
  }
}

// Adds the groups of experts in Megatron-LM's order.
void add_experts(Planner& plan, const RankMesh& experts, const GroupPlanSettings& settings) {
  plan.add_all("ep_gtp", groups_of(experts, {}));
  plan.add_all("ep", groups_of(experts, {"ep"}));
  plan.add_all("ep_tp", groups_of(experts, {"tp"}));
  plan.add_all("tp_ep_mp", groups_of(experts, {"tp", "ep"}));
  plan.add_all("tp_ep_pp", groups_of(experts, {"tp", "ep", "pp"}));
  plan.add_all("tp_ep_pp_gtp", groups_of(experts, {"tp", "ep", "pp"}));
  const int32_t part = part_of(size_along(experts, "dp"), settings.instances, "the experts' dp");
  plan.for_each(groups_of(experts, {"dp"}), [&](const RankLists& lists, size_t index) {
    plan.add("ep_dp", lists.list(index));
    if (settings.instances == 1) return;
    const int32_t sizes[] = {part, settings.instances};
    add_levels(plan, {"intra_ep_dp", "inter_ep_dp"}, lists.list(index), sizes);
  });
  add_instances(plan, experts, static_cast<size_t>(part));
}

void plan_megatron(Planner& plan, const RankMesh& dense, const GroupPlanSettings& settings) {
  std::optional<RankMesh> made;
  if (!settings.experts && dense.has_order()) made.emplace(expert_mesh(dense, 1, 0));
  const RankMesh& experts = settings.experts ? *settings.experts : made ? *made : dense;
  check_megatron(dense, experts, settings);
  add_dense(plan, dense, settings);
  add_experts(plan, experts, settings);
}

// ---- DeepSpeed ----

void plan_deepspeed(Planner& plan, const RankMesh& mesh) {
  for (const MeshAxis& axis : mesh.axes())
    if (axis.name != "pipe" && axis.name != "data" && axis.name != "model")
      fail(DSC_ERR_INVALID_ARG, "the mesh has an axis \"%s\", expected only pipe, data and model",
           axis.name.c_str());
  plan.add_all("ds_model", groups_of(mesh, {"pipe", "model"}));
  plan.add_all("dp", groups_of(mesh, {"data"}));
  plan.add_all("pp", groups_of(mesh, {"pipe"}));
  plan.add_all("slice", groups_of(mesh, {"model"}));
}

}  // namespace

GroupPlan plan_groups(const RankMesh& mesh, const GroupPlanSettings& settings) {
  if (settings.rank != -1) mesh.check_rank("rank", settings.rank);
  Planner plan(settings.rank);
  if (settings.style == "megatron")
    plan_megatron(plan, mesh, settings);
  else if (settings.style == "deepspeed")
    plan_deepspeed(plan, mesh);
  else
    fail(DSC_ERR_INVALID_ARG, "style is \"%s\", expected \"megatron\" or \"deepspeed\"",
         shown_words(settings.style).c_str());
  return plan.take();
}

}  // namespace dsc
