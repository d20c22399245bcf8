// The exponential function for x <= 0. The file is compiled once per instruction set, so its include guard
// uses Highway's toggle.
#if defined(DSC_CROSS_ENTROPY_EXP_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DSC_CROSS_ENTROPY_EXP_INL_HPP
#undef DSC_CROSS_ENTROPY_EXP_INL_HPP
#else
#define DSC_CROSS_ENTROPY_EXP_INL_HPP
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// exp(x) = 2^n * exp(r) with n = round(x / ln 2) and r = x - n ln 2, so that |r| <= ln 2 / 2. For such r,
// exp(r) is approximated by 1 + c1 r + c2 r^2 + ..., with coefficients that minimize the relative error:
// 1.0e-7 in f32, 1.2e-17 in f64. After kRound is added to x / ln 2, the lowest bits of the sum are n + kBias.
template <typename T>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  static constexpr float kCoefficients[] = {
      1, 0x1.fffff6p-1f, 0x1.fffdc6p-2f, 0x1.555a6cp-3f, 0x1.573a6cp-5f, 0x1.0fa82p-7f};
  static constexpr float kBias = 127, kRound = 0x1.8p23f + kBias;
  static constexpr float kLowest = -87;
  static constexpr int kDegree = 5, kMantissaBits = 23;
};

template <>
struct ExpConstants<double> {
  static constexpr double kCoefficients[] = {1,
                                             1,
                                             0x1.000000000000bp-1,
                                             0x1.55555555554b6p-3,
                                             0x1.5555555550194p-5,
                                             0x1.111111112f0b4p-7,
                                             0x1.6c16c18558cbdp-10,
                                             0x1.a01a0113e31fdp-13,
                                             0x1.a0199764980eap-16,
                                             0x1.71df44fd8f60ap-19,
                                             0x1.28af8e10c9ea4p-22,
                                             0x1.ad5e56f09bad8p-26};
  static constexpr double kBias = 1023, kRound = 0x1.8p52 + kBias;
  static constexpr double kLowest = -708;
  static constexpr int kDegree = 11, kMantissaBits = 52;
};

// Returns a * b + c, rounded once. Without vector instructions, f64 results are rounded twice.
template <class V>
HWY_INLINE V fused(V a, V b, V c) {
#if HWY_TARGET == HWY_SCALAR
  using T = hn::TFromV<V>;
  const double sum = static_cast<double>(hn::GetLane(a)) * hn::GetLane(b) + hn::GetLane(c);
  return hn::Set(hn::ScalableTag<T>(), static_cast<T>(sum));
#else
  return hn::MulAdd(a, b, c);
#endif
}

// Returns the terms of the polynomial from degree kFrom on, divided by r^kFrom.
template <typename T, int kFrom, class V>
HWY_INLINE V exp_polynomial(V r) {
  const auto coefficient = hn::Set(hn::ScalableTag<T>(), ExpConstants<T>::kCoefficients[kFrom]);
  if constexpr (kFrom == ExpConstants<T>::kDegree) {
    return coefficient;
  } else {
    return fused(exp_polynomial<T, kFrom + 1>(r), r, coefficient);
  }
}

// Returns x - n * ln 2. In f32, a single constant is accurate enough: the error is n * 1.9e-9. In f64, ln 2
// is split into two constants, and n times the first one is exact.
template <typename T, class V>
HWY_INLINE V reduced(V x, V n) {
  const hn::ScalableTag<T> d;
  if constexpr (sizeof(T) == sizeof(float)) {
    return fused(n, hn::Set(d, -0x1.62e43p-1f), x);
  } else {
    return fused(n, hn::Set(d, -0x1.a39ef35793c76p-33), fused(n, hn::Set(d, -0x1.62e42feep-1), x));
  }
}

// Returns exp(x) for x <= 0. The result is 0 for x below kLowest, where it would be denormal, and NaN for
// NaN.
template <typename T, class V>
HWY_INLINE V exp_of_negative(V x) {
  using E = ExpConstants<T>;
  using D = hn::ScalableTag<T>;
  const D d;
  const hn::RebindToUnsigned<D> u;
  const auto rounded = fused(x, hn::Set(d, static_cast<T>(0x1.71547652b82fep0)), hn::Set(d, E::kRound));
  const auto r = reduced<T>(x, rounded - hn::Set(d, E::kRound));
  const auto power = hn::BitCast(d, hn::ShiftLeft<E::kMantissaBits>(hn::BitCast(u, rounded)));
  return hn::IfThenZeroElse(x < hn::Set(d, E::kLowest), exp_polynomial<T, 0>(r) * power);
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
