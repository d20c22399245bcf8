// Sends the shapes of one rank's tensors to all ranks, so that they can allocate such tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/comm.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// The sizes of one tensor, in the form in which they are sent.
struct ShapeRow {
  static constexpr size_t kMostDims = 16;

  int64_t ndim = 0;
  std::array<int64_t, kMostDims> sizes{};

  size_t count() const noexcept;
};

// The type and sizes of an array of the root. Other ranks know neither of them.
struct ArrayShape {
  static constexpr size_t kMostDims = 32;

  int64_t dtype = 0;
  int64_t ndim = 0;
  std::array<int64_t, kMostDims> sizes{};
};

// Collective. All ranks get the shape that the root has.
void broadcast_shape(Comm& comm, ArrayShape& shape, int root);

// Collective. Implements dsc_broadcast_shapes(). Returns the shapes of the root's tensors on all ranks.
std::vector<ShapeRow> broadcast_shapes(Comm& comm, std::span<const Tensor> tensors, int32_t dtype, int root);

}  // namespace dsc
