#include "tensor_parallel/rms_norm_rows.hpp"

#include <algorithm>
#include <cmath>

#include "dsc/types.h"
#include "dtype/fp_mode.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor_parallel/rms_norm_rows.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "compress/vectors-inl.hpp"
#include "tensor_parallel/cross_entropy_logits-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// Copies of the last elements of a row, filled up with zeros, so that nothing beyond it is touched.
template <class L>
struct Padded {
  using Element = typename L::Element;
  HWY_INLINE Padded(const Element* from, size_t count) { std::copy_n(from, count, elements); }
  Element elements[kSums] = {};
};

// Adds kSums elements of a row to those of the residual, keeps the rounded sums, and adds up their squares.
template <class L, bool kAdds>
HWY_INLINE void keep_part(const typename L::Element* sum, const typename L::Element* residual,
                          typename L::Element* kept, Sums<typename L::Number>& squares) {
  using Number = typename L::Number;
  constexpr size_t kWidth = Sums<Number>::kWidth;
#pragma GCC unroll 16
  for (size_t v = 0; v < Sums<Number>::kVectors; ++v) {
    const size_t at = v * kWidth;
    auto x = L::load(sum + at);
    if constexpr (kAdds) x = L::load(residual + at) + x;
    L::store(canonical(x), kept + at);
    x = L::load(kept + at);
    squares.add(v, x * x);
  }
}

template <class L, bool kAdds>
HWY_INLINE typename L::Number keep_row(const typename L::Element* sum, const typename L::Element* residual,
                                       typename L::Element* kept, size_t elements) {
  Sums<typename L::Number> squares;
  size_t at = 0;
  for (; elements - at >= kSums; at += kSums)
    keep_part<L, kAdds>(sum + at, kAdds ? residual + at : nullptr, kept + at, squares);
  if (at < elements) {
    const size_t count = elements - at;
    Padded<L> last(sum + at, count);
    const Padded<L> added(kAdds ? residual + at : sum + at, count);
    keep_part<L, kAdds>(last.elements, added.elements, last.elements, squares);
    std::copy_n(last.elements, count, kept + at);
  }
  return squares.total();
}

template <class L, bool kWeighs>
HWY_INLINE void scale_part(const typename L::Element* kept, typename L::Number scale,
                           const typename L::Element* weight, typename L::Element* out) {
  using Number = typename L::Number;
  const typename L::Tag d;
  const auto factor = hn::Set(d, scale);
#pragma GCC unroll 16
  for (size_t at = 0; at < kSums; at += Sums<Number>::kWidth) {
    auto x = L::load(kept + at) * factor;
    if constexpr (kWeighs) x = x * L::load(weight + at);
    L::store(canonical(x), out + at);
  }
}

template <class L, bool kWeighs>
HWY_INLINE void scale_row(const typename L::Element* kept, typename L::Number scale,
                          const typename L::Element* weight, typename L::Element* out, size_t elements) {
  size_t at = 0;
  for (; elements - at >= kSums; at += kSums)
    scale_part<L, kWeighs>(kept + at, scale, kWeighs ? weight + at : nullptr, out + at);
  if (at == elements) return;
  const size_t count = elements - at;
  Padded<L> last(kept + at, count);
  const Padded<L> factors(kWeighs ? weight + at : kept + at, count);
  scale_part<L, kWeighs>(last.elements, scale, factors.elements, last.elements);
  std::copy_n(last.elements, count, out + at);
}

// Computed in f64, so that f32 rounds the factor of a row once.
template <typename Number>
HWY_INLINE Number factor_of(Number squares, const RmsNorm& norm) {
  const double mean = static_cast<double>(squares) / static_cast<double>(norm.hidden);
  return static_cast<Number>(1 / std::sqrt(mean + norm.epsilon));
}

template <class L>
HWY_INLINE void normalize_row_of(const RmsNorm& norm, const void* sum_in, const void* residual_in,
                                 void* kept_out, void* out_in) {
  using Element = typename L::Element;
  const auto* sum = static_cast<const Element*>(sum_in);
  const auto* residual = static_cast<const Element*>(residual_in);
  const auto* weight = static_cast<const Element*>(norm.weight);
  auto* kept = static_cast<Element*>(kept_out);
  auto* out = static_cast<Element*>(out_in);
  const auto squares = residual ? keep_row<L, true>(sum, residual, kept, norm.hidden)
                                : keep_row<L, false>(sum, nullptr, kept, norm.hidden);
  const auto factor = factor_of(squares, norm);
  if (weight)
    scale_row<L, true>(kept, factor, weight, out, norm.hidden);
  else
    scale_row<L, false>(kept, factor, nullptr, out, norm.hidden);
}

void normalize_row_f32(const RmsNorm& norm, const void* sum, const void* residual, void* kept, void* out) {
  normalize_row_of<PlainLogits<float>>(norm, sum, residual, kept, out);
}
void normalize_row_f64(const RmsNorm& norm, const void* sum, const void* residual, void* kept, void* out) {
  normalize_row_of<PlainLogits<double>>(norm, sum, residual, kept, out);
}
void normalize_row_f16(const RmsNorm& norm, const void* sum, const void* residual, void* kept, void* out) {
  normalize_row_of<F16Logits>(norm, sum, residual, kept, out);
}
void normalize_row_bf16(const RmsNorm& norm, const void* sum, const void* residual, void* kept, void* out) {
  normalize_row_of<Bf16Logits>(norm, sum, residual, kept, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(normalize_row_f32);
HWY_EXPORT(normalize_row_f64);
HWY_EXPORT(normalize_row_f16);
HWY_EXPORT(normalize_row_bf16);

void normalize_row(const RmsNorm& norm, const void* sum, const void* residual, void* kept, void* out) {
  const FpMode mode;  // the caller's must not change the bits of a row
  switch (norm.dtype) {
    case DSC_DTYPE_F64:
      return HWY_DYNAMIC_DISPATCH(normalize_row_f64)(norm, sum, residual, kept, out);
    case DSC_DTYPE_F16:
      return HWY_DYNAMIC_DISPATCH(normalize_row_f16)(norm, sum, residual, kept, out);
    case DSC_DTYPE_BF16:
      return HWY_DYNAMIC_DISPATCH(normalize_row_bf16)(norm, sum, residual, kept, out);
    default:
      return HWY_DYNAMIC_DISPATCH(normalize_row_f32)(norm, sum, residual, kept, out);
  }
}

}  // namespace dsc
#endif  // HWY_ONCE
