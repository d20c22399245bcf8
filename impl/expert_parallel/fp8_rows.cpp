#include "expert_parallel/fp8_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compress/scaled_fp8.hpp"
#include "dsc/types.h"
#include "dtype/fp_mode.hpp"
#include "dtype/reduce.hpp"

namespace dsc {
namespace {

constexpr float kMost = 448;  // largest number of f8e4m3

// Lower limit of the magnitude from which the scale is computed, because the inverse of the scale must also
// be finite.
constexpr float kLeast = 0x1p-100f;

// Calls `on_block(first element, number of elements, offset of the scale)` for each block of a row.
template <typename OnBlock>
void for_each_block(size_t hidden, const OnBlock& on_block) {
  size_t scale = hidden;
  for (size_t first = 0; first < hidden; first += kFp8Block, scale += sizeof(float))
    on_block(first, std::min(kFp8Block, hidden - first), scale);
}

}  // namespace

void encode_fp8_row(int32_t dtype, const void* row, size_t hidden, std::byte* out) {
  const FpMode mode;
  const auto* from = static_cast<const std::byte*>(row);
  for_each_block(hidden, [&](size_t first, size_t count, size_t scale_at) {
    float values[kFp8Block];
    cast(DSC_DTYPE_F32, values, dtype, from + first * dtype_bytes(dtype), count);
    const float magnitude = max_magnitude({values, count}), most = std::max(magnitude, kLeast);
    const bool is_finite = std::isfinite(magnitude);
    const float scale = is_finite ? most / kMost : std::numeric_limits<float>::quiet_NaN();
    to_fp8(DSC_DTYPE_F8E4M3, {values, count}, is_finite ? kMost / most : 0,
           {reinterpret_cast<uint8_t*>(out) + first, count});
    std::memcpy(out + scale_at, &scale, sizeof scale);
  });
}

void decode_fp8_row(int32_t dtype, const std::byte* row, size_t hidden, void* out) {
  const FpMode mode;
  auto* to = static_cast<std::byte*>(out);
  for_each_block(hidden, [&](size_t first, size_t count, size_t scale_at) {
    float values[kFp8Block], scale = 0;
    std::memcpy(&scale, row + scale_at, sizeof scale);
    from_fp8(DSC_DTYPE_F8E4M3, {reinterpret_cast<const uint8_t*>(row) + first, count}, scale, {values, count},
             false);
    cast(dtype, to + first * dtype_bytes(dtype), DSC_DTYPE_F32, values, count);
  });
}

}  // namespace dsc
