// Derives levels, selected members, the mesh of the experts, and names of ranks from the groups of a mesh.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/mesh.hpp"

namespace dsc {

// Lists of ranks. All lists have the same length. Entries are computed when they are needed.
struct RankLists {
  size_t count = 0;
  size_t size = 0;
  std::function<int32_t(size_t list, size_t member)> rank;

  size_t ranks() const noexcept { return count * size; }
  std::vector<int32_t> list(size_t index) const;
};

RankLists lists_of(MeshGroups groups);

// Treats each list as a box with these sides, the first side fastest, and returns the lists along side
// `level`. The product of the sizes must equal the length of the lists.
RankLists level_lists(RankLists lists, std::span<const int32_t> sizes, size_t level);

// Returns, for each list, the members at these positions, in this order. Negative positions count from the
// end. A repeated member is returned once.
RankLists picked_lists(RankLists lists, std::span<const int32_t> positions);

// Returns the powers of two from 2 to half the length. Megatron-LM divides DP x CP groups into groups of
// these sizes. The length must be 1 or a multiple of every size.
std::vector<int32_t> hybrid_sizes(int32_t length);

// Returns the mesh of the experts for a dense mesh. It has the same ranks and the same order of axes. Its tp
// is `expert_tp` (0: that of the dense mesh), and its dp is computed from the number of ranks. Throws
// INVALID_ARG if the two meshes would have different pp groups.
RankMesh expert_mesh(const RankMesh& dense, int32_t ep, int32_t expert_tp);

// Options of rank_name().
struct NameStyle {
  std::string_view omit;   // axes to leave out, such as "data-pipe"; unknown names are ignored
  std::string_view inner;  // text between an axis and its number
  std::string_view outer;  // text between two axes
};
std::string rank_name(const RankMesh& mesh, int32_t rank, const NameStyle& style);

}  // namespace dsc
