// What goes before activations with variable shapes. Little-endian:
//   u32 magic, u16 version, u16 tensors, u64 sequence number of the message between the two stages in this
//   run, i32 micro-batch, i32 part of the model that receives; then of each tensor i32 dtype, i32 dimensions
//   and an i64 per dimension.
// Both sides know types and dimensions before, and so how long it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/tensor.hpp"

namespace dsc {

struct ShapeHeader {
  uint64_t sequence;
  int32_t micro_batch;
  int32_t part;
};

size_t shape_header_bytes(std::span<const Tensor> tensors) noexcept;
std::vector<std::byte> write_shape_header(const ShapeHeader& header, std::span<const Tensor> tensors);

// Copies the sizes to places, which has one pointer per tensor. Throws MISMATCH, and copies nothing, when it
// is not the header of that message: of the tensors only types and dimensions count.
void read_shape_header(std::span<const std::byte> bytes, const ShapeHeader& expected,
                       std::span<const Tensor> tensors, int64_t* const* places);

}  // namespace dsc
