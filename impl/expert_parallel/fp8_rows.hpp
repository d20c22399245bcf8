// Rows of 8-bit floats with one scale per block of elements, as in DeepSeek-V3 (arXiv:2412.19437, section
// 3.3.2) and DeepEP. A row consists of its hidden elements as f8e4m3, followed by the scales of its blocks as
// f32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsc {

inline constexpr size_t kFp8Block = 128;  // number of elements that share a scale

constexpr size_t fp8_row_bytes(size_t hidden) noexcept {
  return hidden + (hidden + kFp8Block - 1) / kFp8Block * sizeof(float);
}

// Convert a row to and from this format. `dtype` is f32, f16 or bf16. Rows need no alignment.
void encode_fp8_row(int32_t dtype, const void* row, size_t hidden, std::byte* out);
void decode_fp8_row(int32_t dtype, const std::byte* row, size_t hidden, void* out);

}  // namespace dsc
