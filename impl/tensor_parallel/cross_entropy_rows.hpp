// The arithmetic of cross entropy on one row of logits: f16, bf16 and f32 in f32, f64 in f64.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsc {

// Sums over one row, in f64.
struct RowSums {
  double max = 0;      // -infinity for no elements
  double exp_sum = 0;  // of exp(logit - max); NaN if a logit is NaN or +infinity; 0 if all are -infinity
  double sum = 0;      // of the logits, if requested
};

// Returns the sums of a row. It is read from memory once: a part of it stays in the first-level cache while
// first its largest element and then its exponentials are computed. Exponentials below 2^-126 (f64: 2^-1022)
// count as 0.
RowSums sum_row(int32_t dtype, const void* row, size_t count, bool with_sum);

// The gradient of a row is exp(logit - max) * scale - shift.
struct RowGradient {
  double max;
  double scale;
  double shift;
};

// Writes the gradient of a row, which may be the row itself.
void write_row_gradient(int32_t dtype, const void* row, size_t count, const RowGradient& gradient, void* out);

// Read and write one element of a row.
double element_at(int32_t dtype, const void* row, size_t index);
void set_element(int32_t dtype, void* row, size_t index, double value);

}  // namespace dsc
