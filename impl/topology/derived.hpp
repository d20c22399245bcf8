// What is derived from the groups of a mesh: levels, selected members, the mesh of the experts, names and
// factors.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/mesh.hpp"

namespace dsc {

// Lists of ranks of equal length, whose entries are computed on demand.
struct RankLists {
  size_t count = 0;
  size_t size = 0;
  std::function<int32_t(size_t list, size_t member)> rank;

  size_t ranks() const noexcept { return count * size; }
  std::vector<int32_t> list(size_t index) const;
};

RankLists lists_of(MeshGroups groups);

// Treats each list as a box with these sides, the first one fastest, and returns the lists along side
// `level`. The product of the sizes must be the length of the lists.
RankLists level_lists(RankLists lists, std::span<const int32_t> sizes, size_t level);

// Returns for each list the members at these positions, in this order. Negative positions count from the end,
// and repeated members are left out.
RankLists picked_lists(RankLists lists, std::span<const int32_t> positions);

// Returns 2, 4, ... below the length: the sizes into which Megatron-LM divides DP x CP groups. The length
// must be 1 or even.
std::vector<int32_t> hybrid_sizes(int32_t length);

// Returns the mesh of the experts for a dense mesh. It has the same ranks and order, its own tp (0: that of
// the dense mesh), ep, and as dp the rest. Throws INVALID_ARG unless the pp groups are equal in both.
RankMesh expert_mesh(const RankMesh& dense, int32_t ep, int32_t expert_tp);

// Options of rank_name().
struct NameStyle {
  std::string_view omit;   // such as "data-pipe"; names that are not axes are ignored
  std::string_view inner;  // between axis and number
  std::string_view outer;  // between axes
};
std::string rank_name(const RankMesh& mesh, int32_t rank, const NameStyle& style);

}  // namespace dsc
