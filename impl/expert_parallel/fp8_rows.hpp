// Rows as 8-bit floats with a scale for each block of elements, as in DeepSeek-V3 (arXiv:2412.19437, section
// 3.3.2) and DeepEP. A row is its hidden elements as f8e4m3, then the f32 scales of its blocks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsc {

inline constexpr size_t kFp8Block = 128;  // elements that share a scale

constexpr size_t fp8_row_bytes(size_t hidden) noexcept {
  return hidden + (hidden + kFp8Block - 1) / kFp8Block * sizeof(float);
}

// `dtype` is f32, f16 or bf16; the rows may have any address.
void encode_fp8_row(int32_t dtype, const void* row, size_t hidden, std::byte* out);
void decode_fp8_row(int32_t dtype, const std::byte* row, size_t hidden, void* out);

}  // namespace dsc
