// Arithmetic on rows: f16, bf16 and f32 in f32, f64 in f64. The bits of a result depend neither on the
// processor nor on the caller's floating-point mode.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsc {

// Weights are f64 for rows of f64, otherwise f32.
size_t weight_bytes(int32_t dtype) noexcept;

// Computes out = rows[0] * weights[0] + rows[1] * weights[1] + ..., from the left. Each product and sum is
// rounded to f32 (f64), and the result to the type of the rows. Null weights are 1. `row_count` is above 0.
// `out` must not be one of the rows; rows may have any address.
void sum_rows(int32_t dtype, const void* const* rows, const void* weights, size_t row_count, size_t elements,
              void* out);

// Writes the sum of the products of two rows as a weight. It is computed in f64 and rounded once.
void multiply_rows(int32_t dtype, const void* row, const void* other, size_t elements, void* weight);

}  // namespace dsc
