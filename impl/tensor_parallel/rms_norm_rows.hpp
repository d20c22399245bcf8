// The arithmetic of RMSNorm on one row: f16, bf16 and f32 in f32, f64 in f64.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsc {

// The parameters that all rows share.
struct RmsNorm {
  int32_t dtype = 0;
  size_t hidden = 0;             // elements of a row
  double epsilon = 0;            // added to the mean of the squares
  const void* weight = nullptr;  // `hidden` factors of the type; null: all are 1
};

// A row is `sum`, or `sum` + `residual` rounded to the type if `residual` is not null. Writes it to `kept`,
// and row / sqrt(mean of its squares + epsilon) * weight to `out`, rounded once. `kept` may be any of the
// others; `out` may be `sum` or `kept`. The squares of a row are added up in an order that depends on
// `hidden` alone.
void normalize_row(const RmsNorm& norm, const void* sum, const void* residual, void* kept, void* out);

}  // namespace dsc
