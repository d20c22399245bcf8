#include "dsc/mesh.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "comm/mesh_group.hpp"
#include "comm_call.hpp"
#include "give.hpp"
#include "group_options.hpp"
#include "topology/derived.hpp"
#include "topology/group_plan.hpp"
#include "topology/names.hpp"

namespace {

dsc_mesh_options_t default_mesh_options() {
  dsc_mesh_options_t options{};
  options.struct_size = sizeof options;
  return options;
}

dsc_mesh_plan_options_t default_plan_options() {
  dsc_mesh_plan_options_t options{};
  options.struct_size = sizeof options;
  options.style = "megatron";
  options.instances = 1;
  options.virtual_stages = 1;
  options.rank = -1;
  return options;
}

dsc::Pinned<dsc::RankMesh> pin_mesh(const void* handle) {
  return dsc::Pinned<dsc::RankMesh>(dsc::HandleKind::kMesh, handle);
}

dsc_mesh_t* open_mesh(dsc::RankMesh mesh) {
  return dsc::open_handle<dsc_mesh_t>(dsc::HandleKind::kMesh,
                                      std::make_shared<dsc::RankMesh>(std::move(mesh)));
}

dsc_result_t give_lists(const dsc::RankLists& lists, int32_t* ranks, size_t capacity, size_t* n_groups,
                        size_t* group_size) {
  dsc::require(n_groups, "n_groups");
  dsc::require(group_size, "group_size");
  size_t n_ranks = 0;
  const dsc_result_t given = dsc::give_list("ranks", lists.ranks(), ranks, capacity, &n_ranks, [&](size_t i) {
    return lists.rank(i / lists.size, i % lists.size);
  });
  *n_groups = lists.count;
  *group_size = lists.size;
  return given;
}

std::span<const int32_t> read_coords(const dsc::RankMesh& mesh, const int32_t* coords, size_t n_coords) {
  dsc::require(coords, "coords");
  if (n_coords != mesh.axes().size())
    dsc::fail(DSC_ERR_INVALID_ARG, "n_coords is %zu, expected %zu, one per axis", n_coords,
              mesh.axes().size());
  return {coords, n_coords};
}

template <typename T>
std::span<const T> read_list(const char* name, const T* list, size_t n) {
  if (n > 0) dsc::require(list, name);
  return {list, n};
}

dsc::MeshGroups read_groups(const dsc::RankMesh& mesh, const char* axes) {
  return mesh.groups(std::string_view(&dsc::require(axes, "axes")));
}

dsc::MeshSettings mesh_settings(const char* const* names, const int32_t* sizes, size_t n_axes,
                                const dsc_mesh_options_t* options) {
  const auto given = dsc::read_sized(options, default_mesh_options(), "options");
  if (n_axes < 1 || n_axes > dsc::kMostAxes)
    dsc::fail(DSC_ERR_INVALID_ARG, "n_axes is %zu, expected 1 to %zu", n_axes, dsc::kMostAxes);
  dsc::require(names, "names");
  dsc::require(sizes, "sizes");
  dsc::MeshSettings settings;
  for (size_t i = 0; i < n_axes; ++i) {
    if (!names[i]) dsc::fail(DSC_ERR_INVALID_ARG, "names[%zu] is NULL", i);
    settings.axes.push_back({names[i], sizes[i]});
  }
  settings.order = given.order;
  settings.world_size = given.world_size;
  settings.first_rank = given.rank_offset;
  return settings;
}

}  // namespace

// ---- Creation ----

dsc_result_t dsc_mesh_options_init(dsc_mesh_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(options, struct_size, default_mesh_options(), "options"); });
}

dsc_result_t dsc_mesh_create(const char* const* names, const int32_t* sizes, size_t n_axes,
                             const dsc_mesh_options_t* options, dsc_mesh_t** mesh) {
  return dsc::guard(__func__, [&] {
    dsc::require(mesh, "mesh") = nullptr;
    *mesh = open_mesh(dsc::RankMesh(mesh_settings(names, sizes, n_axes, options)));
  });
}

dsc_result_t dsc_mesh_create_experts(const dsc_mesh_t* mesh, int32_t ep, int32_t expert_tp,
                                     dsc_mesh_t** experts) {
  return dsc::guard(__func__, [&] {
    dsc::require(experts, "experts") = nullptr;
    *experts = open_mesh(dsc::expert_mesh(*pin_mesh(mesh), ep, expert_tp));
  });
}

dsc_result_t dsc_mesh_destroy(dsc_mesh_t* mesh) {
  return dsc::guard(__func__, [&] {
    if (mesh) pin_mesh(mesh).close();
  });
}

// ---- Axes and coordinates ----

dsc_result_t dsc_mesh_size(const dsc_mesh_t* mesh, int32_t* size) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    dsc::require(size, "size") = pinned->size();
  });
}

dsc_result_t dsc_mesh_order(const dsc_mesh_t* mesh, char* text, size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    return dsc::give_text(pinned->order_text(), text, capacity, needed);
  });
}

dsc_result_t dsc_mesh_axis_size(const dsc_mesh_t* mesh, const char* axis, int32_t* size) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    dsc::require(axis, "axis");
    dsc::require(size, "size");
    *size = pinned->axes()[pinned->axis(axis)].size;
  });
}

dsc_result_t dsc_mesh_coord(const dsc_mesh_t* mesh, int32_t rank, int32_t* coords, size_t n_coords) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    const size_t n = read_coords(*pinned, coords, n_coords).size();
    pinned->check_rank("rank", rank);
    for (size_t axis = 0; axis < n; ++axis) coords[axis] = pinned->coordinate(rank, axis);
  });
}

dsc_result_t dsc_mesh_rank(const dsc_mesh_t* mesh, const int32_t* coords, size_t n_coords, int32_t* rank) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    dsc::require(rank, "rank");
    *rank = pinned->rank(read_coords(*pinned, coords, n_coords));
  });
}

dsc_result_t dsc_mesh_filter(const dsc_mesh_t* mesh, const int32_t* coords, size_t n_coords, int32_t* ranks,
                             size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    const dsc::MeshGroups all = pinned->matching(read_coords(*pinned, coords, n_coords));
    return dsc::give_list("ranks", static_cast<size_t>(all.size()), ranks, capacity, needed,
                          [&](size_t at) { return all.rank(0, static_cast<int32_t>(at)); });
  });
}

dsc_result_t dsc_mesh_neighbor(const dsc_mesh_t* mesh, int32_t rank, const char* axis, int32_t steps,
                               int32_t* peer) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    dsc::require(axis, "axis");
    dsc::require(peer, "peer");
    pinned->check_rank("rank", rank);
    *peer = pinned->neighbor(rank, pinned->axis(axis), steps);
  });
}

dsc_result_t dsc_mesh_peer(const dsc_mesh_t* mesh, int32_t rank, const char* axis, int32_t coord,
                           int32_t* peer) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    dsc::require(axis, "axis");
    dsc::require(peer, "peer");
    pinned->check_rank("rank", rank);
    const size_t along = pinned->axis(axis);
    const int32_t size = pinned->axes()[along].size;
    if (coord < -size || coord >= size)
      dsc::fail(DSC_ERR_INVALID_ARG, "coord is %d, expected %d to %d along \"%s\"", coord, -size, size - 1,
                axis);
    *peer = pinned->replaced(rank, along, coord < 0 ? coord + size : coord);
  });
}

dsc_result_t dsc_mesh_rank_name(const dsc_mesh_t* mesh, int32_t rank, const char* omit, const char* inner,
                                const char* outer, char* text, size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    pinned->check_rank("rank", rank);
    const dsc::NameStyle style{omit ? omit : "", inner ? inner : "_", outer ? outer : "-"};
    return dsc::give_text(dsc::rank_name(*pinned, rank, style), text, capacity, needed);
  });
}

// ---- Groups ----

dsc_result_t dsc_mesh_groups(const dsc_mesh_t* mesh, const char* axes, int32_t* ranks, size_t capacity,
                             size_t* n_groups, size_t* group_size) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    return give_lists(dsc::lists_of(read_groups(*pinned, axes)), ranks, capacity, n_groups, group_size);
  });
}

dsc_result_t dsc_mesh_group(const dsc_mesh_t* mesh, int32_t rank, const char* axes, int32_t* ranks,
                            size_t capacity, size_t* needed, size_t* group, size_t* member) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    const dsc::MeshGroups groups = read_groups(*pinned, axes);
    pinned->check_rank("rank", rank);
    const dsc::MeshPosition own = groups.position(rank);
    const dsc_result_t given =
        dsc::give_list("ranks", static_cast<size_t>(groups.size()), ranks, capacity, needed,
                       [&](size_t at) { return groups.rank(own.group, static_cast<int32_t>(at)); });
    if (group) *group = static_cast<size_t>(own.group);
    if (member) *member = static_cast<size_t>(own.member);
    return given;
  });
}

dsc_result_t dsc_mesh_levels(const dsc_mesh_t* mesh, const char* axes, const int32_t* sizes, size_t n_levels,
                             size_t level, int32_t* ranks, size_t capacity, size_t* n_groups,
                             size_t* group_size) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    auto lists = dsc::lists_of(read_groups(*pinned, axes));
    const auto box = read_list("sizes", sizes, n_levels);
    return give_lists(dsc::level_lists(std::move(lists), box, level), ranks, capacity, n_groups, group_size);
  });
}

dsc_result_t dsc_mesh_members(const dsc_mesh_t* mesh, const char* axes, const int32_t* positions,
                              size_t n_positions, int32_t* ranks, size_t capacity, size_t* n_groups,
                              size_t* group_size) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    auto lists = dsc::lists_of(read_groups(*pinned, axes));
    if (n_positions == 0) dsc::fail(DSC_ERR_INVALID_ARG, "n_positions is 0, expected 1 or more");
    const auto picked = read_list("positions", positions, n_positions);
    return give_lists(dsc::picked_lists(std::move(lists), picked), ranks, capacity, n_groups, group_size);
  });
}

// ---- All groups of a framework ----

dsc_result_t dsc_mesh_plan_options_init(dsc_mesh_plan_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(options, struct_size, default_plan_options(), "options"); });
}

dsc_result_t dsc_mesh_plan(const dsc_mesh_t* mesh, const dsc_mesh_plan_options_t* options, const char** names,
                           size_t* starts, size_t group_capacity, int32_t* ranks, size_t rank_capacity,
                           size_t* n_groups, size_t* n_ranks) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_mesh(mesh);
    const auto given = dsc::read_sized(options, default_plan_options(), "options");
    if (given.hybrid != 0 && given.hybrid != 1)
      dsc::fail(DSC_ERR_INVALID_ARG, "options->hybrid is %d, expected 0 or 1", given.hybrid);
    std::optional<dsc::Pinned<dsc::RankMesh>> experts;
    if (given.experts) experts.emplace(dsc::HandleKind::kMesh, given.experts);
    const dsc::GroupPlan plan = dsc::plan_groups(
        *pinned, {.style = &dsc::require(given.style, "options->style"),
                  .experts = experts ? experts->get() : nullptr,
                  .cp_levels = read_list("options->cp_levels", given.cp_levels, given.n_cp_levels),
                  .instances = given.instances,
                  .hybrid = given.hybrid == 1,
                  .virtual_stages = given.virtual_stages,
                  .rank = given.rank});
    if ((group_capacity == 0) != (rank_capacity == 0))
      dsc::fail(DSC_ERR_INVALID_ARG,
                "group_capacity is %zu and rank_capacity is %zu, expected both 0 or both above 0",
                group_capacity, rank_capacity);
    dsc::check_room(names, "names", group_capacity, n_groups);
    dsc::check_room(starts, "starts", group_capacity, n_groups);
    dsc::check_room(ranks, "ranks", rank_capacity, n_ranks);
    const dsc_result_t groups = dsc::give_list("names", plan.names, names, group_capacity, n_groups);
    if (group_capacity > 0)
      std::copy_n(plan.starts.begin(), std::min(group_capacity + 1, plan.starts.size()), starts);
    const dsc_result_t members = dsc::give_list("ranks", plan.ranks, ranks, rank_capacity, n_ranks);
    return groups == DSC_OK ? members : groups;
  });
}

// ---- Communicators ----

dsc_result_t dsc_mesh_comm(const dsc_mesh_t* mesh, dsc_comm_t* comm, const char* axes,
                           const dsc_comm_options_t* options, dsc_comm_t** group) {
  return dsc::guard(__func__, [&] {
    if (group) *group = nullptr;
    const auto pinned = pin_mesh(mesh);
    dsc::CommCall inside(comm);
    dsc::require(group, "group");
    dsc::require(axes, "axes");
    *group = dsc::open_comm(dsc::split_along(*inside, *pinned, axes, dsc::read_group_options(options)));
  });
}
