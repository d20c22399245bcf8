// Conversion to 8-bit floats with a scale, as in the FP8 gradient communication of FP8-LM (Peng et al.,
// "FP8-LM: Training FP8 Large Language Models", 2023) and NVIDIA's Transformer Engine. The formats are those
// of Micikevicius et al., "FP8 Formats for Deep Learning", 2022.
//
// The same input gives the same bits on every processor, except for the sign and payload of NaN in f32. The
// caller's floating-point mode does not matter.
#pragma once

#include <cstdint>
#include <span>

namespace dsc {

// Returns the largest magnitude, 0 if there are no values, NaN if any is NaN.
float max_magnitude(std::span<const float> values);

// Computes out = value * scale, rounded to nearest even. Magnitudes beyond the largest finite number (448 in
// f8e4m3, 57344 in f8e5m2), including infinity, become that number. NaN becomes the canonical NaN. A caller
// that must detect infinities calls max_magnitude() first.
//
// Requires: dtype is DSC_DTYPE_F8E4M3 or DSC_DTYPE_F8E5M2; `out` has as many elements as `values`.
void to_fp8(int32_t dtype, std::span<const float> values, float scale, std::span<uint8_t> out);

// Computes out = number * scale, or adds that to `out`. The requirements are those of to_fp8().
void from_fp8(int32_t dtype, std::span<const uint8_t> in, float scale, std::span<float> out, bool add);

}  // namespace dsc
