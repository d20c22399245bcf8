// The header that precedes activations with variable shapes. All numbers are little-endian:
//
//   u32 magic, u16 version, u16 number of tensors, u64 sequence number, i32 micro-batch, i32 part of the
//   model that receives the activation; then for each tensor i32 dtype, i32 number of dimensions, and one i64
//   per dimension.
//
// The sequence number counts the messages between the two stages in this run. Both stages know the types and
// numbers of dimensions in advance, and therefore the length of the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/tensor.hpp"

namespace dsc {

// Identifies the activation that follows the header.
struct ShapeHeader {
  uint64_t sequence;
  int32_t micro_batch;
  int32_t part;
};

size_t shape_header_bytes(std::span<const Tensor> tensors) noexcept;
std::vector<std::byte> write_shape_header(const ShapeHeader& header, std::span<const Tensor> tensors);

// Copies the sizes from a header to `positions`, which has one pointer per tensor. Throws MISMATCH, and
// copies nothing, if the header does not belong to the expected message. For this check, only the types and
// numbers of dimensions of the tensors are compared.
void read_shape_header(std::span<const std::byte> bytes, const ShapeHeader& expected,
                       std::span<const Tensor> tensors, int64_t* const* positions);

}  // namespace dsc
