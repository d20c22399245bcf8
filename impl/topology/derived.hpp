// What is made from the groups of a mesh: levels, picked members, the mesh of the experts, names, factors.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/mesh.hpp"

namespace dsc {

// Lists of equal length, found by arithmetic.
struct RankLists {
  size_t count = 0;
  size_t size = 0;
  std::function<int32_t(size_t list, size_t member)> rank;

  size_t ranks() const noexcept { return count * size; }
  void write(std::span<int32_t> ranks) const;  // list after list
  std::vector<int32_t> list(size_t index) const;
};

RankLists lists_of(MeshGroups groups);

// Each list seen as a box of these sizes, the first one fastest; the lists along side `level` of it. The
// product of the sizes must be the lists' length.
RankLists level_lists(RankLists lists, std::span<const int32_t> sizes, size_t level);

// Of each list the members at these positions, in this order; negative ones count from the end, and one that
// comes again is left out.
RankLists picked_lists(RankLists lists, std::span<const int32_t> positions);

// 2, 4, ... below the length: sizes into which Megatron-LM cuts DP x CP groups. The length must be even,
// or 1.
std::vector<int32_t> hybrid_sizes(int32_t length);

// The experts' mesh beside a dense one: the same ranks and order, tp of its own (0: the dense one's), ep, and
// dp from what is left. Throws INVALID_ARG unless pp groups are the same in both.
RankMesh expert_mesh(const RankMesh& dense, int32_t ep, int32_t expert_tp);

struct NameStyle {
  std::string_view omit;   // "data-pipe"; names that are no axes are passed over
  std::string_view inner;  // between axis and number
  std::string_view outer;  // between axes
};
std::string rank_name(const RankMesh& mesh, int32_t rank, const NameStyle& style);

std::vector<int64_t> prime_factors(int64_t n);  // ascending

struct DefaultGrid {
  int32_t pipe = 1;
  int32_t data = 1;
};
DefaultGrid default_grid(int32_t world_size);

}  // namespace dsc
