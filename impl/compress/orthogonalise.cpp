#include <cmath>
#include <vector>

#include "compress/powersgd.hpp"
#include "dtype/fp_mode.hpp"

#ifndef HWY_TARGET_INCLUDE  // kernels.cpp defines this macro and includes this file
#define HWY_TARGET_INCLUDE "compress/orthogonalise.cpp"
#endif
#include "hwy/foreach_target.h"
// This header must be included after foreach_target.h.
#include "compress/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

double dot(const float* a, const float* b, size_t count) {
  Sums<double> sums;
  size_t at = 0;
  for (; count - at >= kSums; at += kSums) {
#pragma GCC unroll 16
    for (size_t v = 0; v < Sums<double>::kVectors; ++v) {
      const size_t first = at + v * kF64Lanes;
      sums.add(v, load_widened(a + first) * load_widened(b + first));
    }
  }
  double rest[kSums];
  sums.store(rest);
  for (; at < count; ++at) rest[at % kSums] += static_cast<double>(a[at]) * b[at];
  return folded(rest);
}

struct Subtract {
  float factor;

  HWY_INLINE void operator()(const float* in, float* out) const {
    const F32 f;
    hn::StoreU(hn::LoadU(f, out) - hn::LoadU(f, in) * hn::Set(f, factor), f, out);
  }
};

void subtract_multiple(const float* in, size_t count, float factor, float* out) {
  for_each_vector(in, out, count, Subtract{factor});
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(dot);
HWY_EXPORT(subtract_multiple);

namespace {

// Divides in f64, because the inverse of a very small norm overflows in f32.
void normalise(float* column, size_t rows, float epsilon) {
  const double divisor = std::sqrt(HWY_DYNAMIC_DISPATCH(dot)(column, column, rows)) + epsilon;
  if (divisor == 0) return;
  for (size_t row = 0; row < rows; ++row) column[row] = static_cast<float>(column[row] / divisor);
}

}  // namespace

// Works on a transposed copy, in which the elements of a column are contiguous.
void orthogonalise(float* matrix, size_t rows, size_t columns, float epsilon) {
  const FpMode mode;
  std::vector<float> copy(rows * columns);
  for (size_t row = 0; row < rows; ++row)
    for (size_t c = 0; c < columns; ++c) copy[c * rows + row] = matrix[row * columns + c];
  for (size_t c = 0; c < columns; ++c) {
    float* const column = copy.data() + c * rows;
    normalise(column, rows, epsilon);
    for (size_t later = c + 1; later < columns; ++later) {
      float* const other = copy.data() + later * rows;
      const auto factor = static_cast<float>(HWY_DYNAMIC_DISPATCH(dot)(column, other, rows));
      HWY_DYNAMIC_DISPATCH(subtract_multiple)(column, rows, factor, other);
    }
  }
  for (size_t row = 0; row < rows; ++row)
    for (size_t c = 0; c < columns; ++c) matrix[row * columns + c] = copy[c * rows + row];
}

}  // namespace dsc
#endif
