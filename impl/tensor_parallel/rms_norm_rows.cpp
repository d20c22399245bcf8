#include "tensor_parallel/rms_norm_rows.hpp"

#include <algorithm>
#include <cmath>

#include "dsc/types.h"
#include "dtype/fp_mode.hpp"

#ifndef HWY_TARGET_INCLUDE  // if the macro is defined, kernels.cpp includes this file
#define HWY_TARGET_INCLUDE "tensor_parallel/rms_norm_rows.cpp"
#endif
#include "hwy/foreach_target.h"
// Highway requires this include after foreach_target.h.
#include "compress/vectors-inl.hpp"
#include "dtype/half-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// Number of elements that are processed together (two Quads with AVX2), and number of running sums of a row.
// Element i is added to sum i % kPart, so that every processor adds the same numbers in the same order.
constexpr size_t kPart = 64;

// Loops over a part are unrolled, so that the sums stay in registers. Without vector instructions there are
// too many sums for registers, and compiling unrolled loops would take almost a minute.
constexpr int kUnrolled = HWY_TARGET == HWY_SCALAR ? 1 : 16;

// Defines how to store vectors of computed numbers, so that they are in the order of the elements of L.
template <class L>
struct Order {
  using Number = typename L::Element;
  using Lanes = L;
};
template <>
struct Order<F16> {
  using Number = float;
  using Lanes = Plain<float>;
};
template <>
struct Order<Bf16> {
  using Number = float;
  using Lanes = F32Pairs;
};

template <class L>
using NumberOf = typename Order<L>::Number;

template <class V, class Op>
HWY_INLINE Quad<V> each(const Quad<V>& x, const Quad<V>& y, const Op& op) {
  return {op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d)};
}

struct Plus {
  template <class V>
  HWY_INLINE V operator()(V x, V y) const {
    return x + y;
  }
};

struct Times {
  template <class V>
  HWY_INLINE V operator()(V x, V y) const {
    return x * y;
  }
};

template <class L>
class Squares {
 public:
  static constexpr size_t kElements = L::kMaxElements;
  static constexpr size_t kQuads = kPart / kElements;

  HWY_INLINE Squares() {
    const auto zero = hn::Zero(typename L::Tag());
#pragma GCC unroll kUnrolled
    for (size_t q = 0; q < kQuads; ++q) sums_[q] = {zero, zero, zero, zero};
  }
  HWY_INLINE void add(size_t q, const Quad<typename L::V>& x) {
    sums_[q] = each(sums_[q], each(x, x, Times()), Plus());
  }
  HWY_INLINE NumberOf<L> total() const {
    NumberOf<L> sums[kPart];
#pragma GCC unroll kUnrolled
    for (size_t q = 0; q < kQuads; ++q)
      Order<L>::Lanes::template store<false>(sums_[q], sums + q * kElements);
    return folded(sums);
  }

 private:
  Quad<typename L::V> sums_[kQuads];
};

// A copy of the last elements of a row, padded with zeros, so that nothing after the row is read or written.
template <class L>
struct Padded {
  using Element = typename L::Element;
  HWY_INLINE Padded(const Element* from, size_t count) { std::copy_n(from, count, elements); }
  Element elements[kPart] = {};
};

template <class L>
HWY_INLINE void store_rounded(const Quad<typename L::V>& x, typename L::Element* to) {
  L::template store<false>(L::pack(canonical(x)), to);
}

// Adds kPart elements of a row to those of the residual, stores the rounded sums in `kept`, and adds the
// squares of the rounded sums to `squares`.
template <class L, bool kAdds>
HWY_INLINE void keep_part(const typename L::Element* sum, const typename L::Element* residual,
                          typename L::Element* kept, Squares<L>& squares) {
#pragma GCC unroll kUnrolled
  for (size_t q = 0; q < Squares<L>::kQuads; ++q) {
    const size_t at = q * Squares<L>::kElements;
    auto x = L::load(sum + at);
    if constexpr (kAdds) x = each(x, L::load(residual + at), Plus());
    store_rounded<L>(x, kept + at);
    squares.add(q, L::load(kept + at));
  }
}

template <class L, bool kAdds>
HWY_INLINE NumberOf<L> keep_row(const typename L::Element* sum, const typename L::Element* residual,
                                typename L::Element* kept, size_t elements) {
  Squares<L> squares;
  size_t at = 0;
  for (; elements - at >= kPart; at += kPart)
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
HWY_INLINE void scale_part(const typename L::Element* kept, NumberOf<L> scale,
                           const typename L::Element* weight, typename L::Element* out) {
  const auto factor = hn::Set(typename L::Tag(), scale);
#pragma GCC unroll kUnrolled
  for (size_t at = 0; at < kPart; at += Squares<L>::kElements) {
    auto x = each(L::load(kept + at), {factor, factor, factor, factor}, Times());
    if constexpr (kWeighs) x = each(x, L::load(weight + at), Times());
    store_rounded<L>(x, out + at);
  }
}

template <class L, bool kWeighs>
HWY_INLINE void scale_row(const typename L::Element* kept, NumberOf<L> scale,
                          const typename L::Element* weight, typename L::Element* out, size_t elements) {
  size_t at = 0;
  for (; elements - at >= kPart; at += kPart)
    scale_part<L, kWeighs>(kept + at, scale, kWeighs ? weight + at : nullptr, out + at);
  if (at == elements) return;
  const size_t count = elements - at;
  Padded<L> last(kept + at, count);
  const Padded<L> factors(kWeighs ? weight + at : kept + at, count);
  scale_part<L, kWeighs>(last.elements, scale, factors.elements, last.elements);
  std::copy_n(last.elements, count, out + at);
}

// Returns 1 / sqrt(mean of squares + epsilon). It is computed in f64, so that an f32 result is rounded only
// once.
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
  normalize_row_of<Plain<float>>(norm, sum, residual, kept, out);
}
void normalize_row_f64(const RmsNorm& norm, const void* sum, const void* residual, void* kept, void* out) {
  normalize_row_of<Plain<double>>(norm, sum, residual, kept, out);
}
void normalize_row_f16(const RmsNorm& norm, const void* sum, const void* residual, void* kept, void* out) {
  normalize_row_of<F16>(norm, sum, residual, kept, out);
}
void normalize_row_bf16(const RmsNorm& norm, const void* sum, const void* residual, void* kept, void* out) {
  normalize_row_of<Bf16>(norm, sum, residual, kept, out);
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
  const FpMode mode;  // the caller's mode must not change the bits of a row
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
