// Arithmetic on rows. It is done in f32 for f16, bf16 and f32, and in f64 for f64. The bits of a result
// depend neither on the processor nor on the caller's floating-point mode.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsc {

// Returns the size of a weight. Weights are f64 for rows of f64, and f32 for other rows.
size_t weight_bytes(int32_t dtype) noexcept;

// Computes out = rows[0] * weights[0] + rows[1] * weights[1] + ... in this order. Each product and sum is
// rounded to f32 (or f64), and the result is rounded to the type of the rows. If `weights` is null, all
// weights are 1. `row_count` must be above 0. `out` must not be one of the rows. Rows need no alignment.
void sum_rows(int32_t dtype, const void* const* rows, const void* weights, size_t row_count, size_t elements,
              void* out);

// Computes the dot product of two rows and writes it as a weight. It is computed in f64 and rounded once.
void multiply_rows(int32_t dtype, const void* row, const void* other, size_t elements, void* weight);

}  // namespace dsc
