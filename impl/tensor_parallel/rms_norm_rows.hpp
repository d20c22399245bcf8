// The arithmetic of RMSNorm for one row. It is done in f32 for f16, bf16 and f32, and in f64 for f64.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsc {

// The parameters that all rows share.
struct RmsNorm {
  int32_t dtype = 0;
  size_t hidden = 0;             // number of elements in a row
  double epsilon = 0;            // number that is added to the mean of the squares
  const void* weight = nullptr;  // `hidden` factors of this type; null means that all are 1
};

// The row is `sum`; if `residual` is not null, it is `sum` + `residual`, rounded to the element type. Writes
// the row to `kept`. Writes row / sqrt(mean of its squares + epsilon) * weight to `out`, rounded once. `kept`
// may be any of the other buffers; `out` may be `sum` or `kept`. The squares are added in an order that
// depends only on `hidden`.
void normalize_row(const RmsNorm& norm, const void* sum, const void* residual, void* kept, void* out);

}  // namespace dsc
