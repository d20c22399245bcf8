// The arithmetic of cross entropy for one row of logits. It is done in f32 for f16, bf16 and f32, and in f64
// for f64.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsc {

// The sums over one row, as f64 numbers.
struct RowSums {
  double max = 0;  // -infinity if the row is empty
  // Sum of exp(logit - max). It is NaN if a logit is NaN or +infinity, and 0 if all logits are -infinity.
  double exp_sum = 0;
  double sum = 0;  // sum of the logits, if requested
};

// Returns the sums of a row. The row is read from memory only once: each part stays in the first-level cache
// while its largest element and then its exponentials are computed. Exponentials below 2^-126 (f64: 2^-1022)
// count as 0.
RowSums sum_row(int32_t dtype, const void* row, size_t count, bool with_sum);

// The gradient of a row is exp(logit - max) * scale - shift.
struct RowGradient {
  double max;
  double scale;
  double shift;
};

// Writes the gradient of a row. `out` may be `row`.
void write_row_gradient(int32_t dtype, const void* row, size_t count, const RowGradient& gradient, void* out);

// Read and write one element of a row.
double element_at(int32_t dtype, const void* row, size_t index);
void set_element(int32_t dtype, void* row, size_t index, double value);

}  // namespace dsc
