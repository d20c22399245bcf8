// Symmetric quantization to 8 or 4 bits, in blocks that each have a scale, as in ZeRO++ (Wang et al.,
// "ZeRO++: Extremely Efficient Collective Communication for Giant Model Training", 2023). Scales, rounding
// and packing are the same as in DeepSpeed's kernels.
//
// Let m be the largest magnitude of a block. Then scale = 2^bits / (2 m), or 1 if m is 0. An element becomes
// x * scale, rounded to nearest even and clamped to the range from -2^(bits - 1) to 2^(bits - 1) - 1. The
// block stores 1 / scale. If m is so small that the scale would be infinite, the scale is the largest finite
// number. A block with a NaN or infinity gets the scale NaN, so that all its results are NaN.
//
// The same input gives the same bits on every processor, except for the sign and payload of NaN. The caller's
// floating-point mode does not matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dsc {

// Returns the packed bytes of `count` elements. With 4 bits, element 2i is in the high half of byte i and
// element 2i + 1 in the low half.
size_t block_bytes(int bits, size_t count);

// Quantizes. Requires: bits is 8 or 4. `block`, the number of elements in a block, is not 0, and is even if
// bits is 4; the last block may be shorter. `packed` has block_bytes() bytes, and `scales` has one element
// per block.
void quantise_blocks(int bits, size_t block, std::span<const float> values, std::span<uint8_t> packed,
                     std::span<float> scales);

// Computes out = q * stored scale, or adds that to `out`. The requirements are those of quantise_blocks().
void dequantise_blocks(int bits, size_t block, std::span<const uint8_t> packed, std::span<const float> scales,
                       std::span<float> out, bool add);

}  // namespace dsc
