// Compression to one bit per element with error feedback, as in 1-bit Adam (Tang et al., "1-bit Adam:
// Communication Efficient Large-Scale Training with Adam's Convergence Speed", 2021). The layout of the bits
// and the padding are the same as in DeepSpeed's compressed_allreduce.
//
// The same input gives the same bits on every processor, except for the sign and payload of NaN. For this,
// the scale is computed in f64 with sixteen running sums, and everything else element by element. The
// caller's floating-point mode does not matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dsc {

// Returns `count` rounded up so that every rank has an equal part whose signs fill whole bytes. `ranks` must
// not be 0.
size_t onebit_padded(size_t count, size_t ranks);

// Adds `error` to `values` and writes the signs of the results, one bit per element. The first element is in
// the highest bit of a byte. A bit is 1 if the sign bit of the result is 0, so +0 counts as positive and -0
// as negative. Afterwards, `error` holds the difference between the results and scale * sign. Returns the
// scale, which is the root mean square of the results (0 if there are none).
//
// The size of `error` is a multiple of 8, is eight times that of `bits`, and is at least that of `values`;
// missing values count as zeros. A NaN or infinity in `values` makes the scale NaN or infinite. The caller
// must then clear `error`, because it would keep NaN permanently.
float compress_signs(std::span<const float> values, std::span<float> error, std::span<uint8_t> bits);

// Computes sum += scale * sign. `sum` may have fewer elements than there are bits.
void add_signs(std::span<const uint8_t> bits, float scale, std::span<float> sum);

// Computes out = scale * sign. `out` may have fewer elements than there are bits.
void expand_signs(std::span<const uint8_t> bits, float scale, std::span<float> out);

}  // namespace dsc
