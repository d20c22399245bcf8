#include "tensor_parallel/cross_entropy_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dsc/types.h"
#include "dtype/dtype.hpp"
#include "dtype/fp_mode.hpp"
#include "dtype/reduce.hpp"
#include "hwy/cache_control.h"

#ifndef HWY_TARGET_INCLUDE  // if the macro is defined, kernels.cpp includes this file
#define HWY_TARGET_INCLUDE "tensor_parallel/cross_entropy_rows.cpp"
#endif
#include "hwy/foreach_target.h"
// Highway requires this include after foreach_target.h.
#include "compress/vectors-inl.hpp"
#include "dtype/logits-inl.hpp"
#include "tensor_parallel/cross_entropy_exp-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// Number of elements that are processed together. They are read twice and stay in the first-level cache
// meanwhile.
constexpr size_t kBlock = 2048;

// Returns the largest element. If the block contains a NaN, the result may be wrong.
template <class L>
HWY_INLINE double max_of_block(const typename L::Element* in, size_t count) {
  using D = typename L::Tag;
  constexpr size_t kWidth = hn::MaxLanes(D()) * L::kPerLane;
  auto max = hn::Set(D(), -std::numeric_limits<typename L::Number>::infinity());
  const auto take = [&](auto v) HWY_ATTR { max = hn::Max(max, v); };
  size_t at = 0;
  for (; count - at >= kWidth; at += kWidth) L::for_each(in + at, take);
  if (at < count) {
    typename L::Element last[kWidth];
    std::fill_n(last, kWidth, L::kLowest);
    std::copy_n(in + at, count - at, last);
    L::for_each(last, take);
  }
  return static_cast<double>(hn::GetLane(hn::MaxOfLanes(D(), max)));
}

// Returns the sum of `value(x)` over all elements x. Elements in lane i are added to running sum i % kSums.
// The last elements are filled up with `padding`, whose value is 0.
template <class L, class Value>
HWY_INLINE double sum_block(const typename L::Element* in, size_t count, typename L::Element padding,
                            const Value& value) {
  using Number = typename L::Number;
  constexpr size_t kWidth = Sums<Number>::kWidth * L::kPerLane, kStep = kSums * L::kPerLane;
  Sums<Number> sums;
  const auto add = [&](const typename L::Element* from) HWY_ATTR {
#pragma GCC unroll 16
    for (size_t v = 0; v < Sums<Number>::kVectors; ++v)
      L::for_each(from + v * kWidth, [&](auto x) HWY_ATTR { sums.add(v, value(x)); });
  };
  size_t at = 0;
  for (; count - at >= kStep; at += kStep) {
    hwy::Prefetch(in + at + kBlock);  // part of the next block; has no effect beyond the array
    add(in + at);
  }
  if (at < count) {
    typename L::Element last[kStep];
    std::fill_n(last, kStep, padding);
    std::copy_n(in + at, count - at, last);
    add(last);
  }
  return static_cast<double>(sums.total());
}

template <typename T>
struct ExpBelow {
  hn::Vec<hn::ScalableTag<T>> max;
  HWY_INLINE auto operator()(hn::Vec<hn::ScalableTag<T>> x) const { return exp_of_negative<T>(x - max); }
};

struct Itself {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return x;
  }
};

// Adds a block to the sums of a row. The sums are relative to the largest element so far, and are rescaled if
// the block has a larger one.
template <class L>
HWY_INLINE void add_block(const typename L::Element* in, size_t count, bool with_sum, RowSums& row) {
  using Number = typename L::Number;
  const double max = max_of_block<L>(in, count);
  if (max > row.max) {
    row.exp_sum *= std::exp(row.max - max);
    row.max = max;
  }
  const bool none = row.max == -std::numeric_limits<double>::infinity();
  const auto reference = hn::Set(typename L::Tag(), none ? Number{0} : static_cast<Number>(row.max));
  row.exp_sum += sum_block<L>(in, count, L::kLowest, ExpBelow<Number>{reference});
  if (with_sum) row.sum += sum_block<L>(in, count, typename L::Element{0}, Itself());
}

template <class L>
HWY_INLINE RowSums sum_row_of(const void* row, size_t count, bool with_sum) {
  const auto* in = static_cast<const typename L::Element*>(row);
  RowSums sums{-std::numeric_limits<double>::infinity(), 0, 0};
  for (size_t at = 0; at < count; at += kBlock)
    add_block<L>(in + at, std::min(kBlock, count - at), with_sum, sums);
  return sums;
}

template <class L>
HWY_INLINE void write_gradient_of(const void* row, size_t count, const RowGradient& gradient, void* result) {
  using Number = typename L::Number;
  using Element = typename L::Element;
  const typename L::Tag d;
  constexpr size_t kWidth = hn::MaxLanes(typename L::Tag()) * L::kPerLane;
  const auto max = canonical(hn::Set(d, static_cast<Number>(gradient.max)));
  const auto scale = canonical(hn::Set(d, static_cast<Number>(gradient.scale)));
  const auto shift = canonical(hn::Set(d, static_cast<Number>(-gradient.shift)));
  const auto value = [&](auto x) HWY_ATTR { return fused(exp_of_negative<Number>(x - max), scale, shift); };
  const auto* in = static_cast<const Element*>(row);
  auto* out = static_cast<Element*>(result);
  size_t at = 0;
  for (; count - at >= kWidth; at += kWidth) L::map(in + at, out + at, value);
  if (at == count) return;
  Element last[kWidth] = {};
  std::copy_n(in + at, count - at, last);
  L::map(last, last, value);
  std::copy_n(last, count - at, out + at);
}

RowSums sum_row_f32(const void* row, size_t count, bool with_sum) {
  return sum_row_of<PlainLogits<float>>(row, count, with_sum);
}
RowSums sum_row_f64(const void* row, size_t count, bool with_sum) {
  return sum_row_of<PlainLogits<double>>(row, count, with_sum);
}
RowSums sum_row_f16(const void* row, size_t count, bool with_sum) {
  return sum_row_of<F16Logits>(row, count, with_sum);
}
RowSums sum_row_bf16(const void* row, size_t count, bool with_sum) {
  return sum_row_of<Bf16Logits>(row, count, with_sum);
}

void write_gradient_f32(const void* row, size_t count, const RowGradient& gradient, void* out) {
  write_gradient_of<PlainLogits<float>>(row, count, gradient, out);
}
void write_gradient_f64(const void* row, size_t count, const RowGradient& gradient, void* out) {
  write_gradient_of<PlainLogits<double>>(row, count, gradient, out);
}
void write_gradient_f16(const void* row, size_t count, const RowGradient& gradient, void* out) {
  write_gradient_of<F16Logits>(row, count, gradient, out);
}
void write_gradient_bf16(const void* row, size_t count, const RowGradient& gradient, void* out) {
  write_gradient_of<Bf16Logits>(row, count, gradient, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(sum_row_f32);
HWY_EXPORT(sum_row_f64);
HWY_EXPORT(sum_row_f16);
HWY_EXPORT(sum_row_bf16);
HWY_EXPORT(write_gradient_f32);
HWY_EXPORT(write_gradient_f64);
HWY_EXPORT(write_gradient_f16);
HWY_EXPORT(write_gradient_bf16);

namespace {

const void* element(int32_t dtype, const void* row, size_t index) {
  return static_cast<const std::byte*>(row) + index * dtype_bytes(dtype);
}

}  // namespace

RowSums sum_row(int32_t dtype, const void* row, size_t count, bool with_sum) {
  const FpMode mode;
  switch (dtype) {
    case DSC_DTYPE_F64:
      return HWY_DYNAMIC_DISPATCH(sum_row_f64)(row, count, with_sum);
    case DSC_DTYPE_F16:
      return HWY_DYNAMIC_DISPATCH(sum_row_f16)(row, count, with_sum);
    case DSC_DTYPE_BF16:
      return HWY_DYNAMIC_DISPATCH(sum_row_bf16)(row, count, with_sum);
    default:
      return HWY_DYNAMIC_DISPATCH(sum_row_f32)(row, count, with_sum);
  }
}

void write_row_gradient(int32_t dtype, const void* row, size_t count, const RowGradient& gradient,
                        void* out) {
  const FpMode mode;
  switch (dtype) {
    case DSC_DTYPE_F64:
      return HWY_DYNAMIC_DISPATCH(write_gradient_f64)(row, count, gradient, out);
    case DSC_DTYPE_F16:
      return HWY_DYNAMIC_DISPATCH(write_gradient_f16)(row, count, gradient, out);
    case DSC_DTYPE_BF16:
      return HWY_DYNAMIC_DISPATCH(write_gradient_bf16)(row, count, gradient, out);
    default:
      return HWY_DYNAMIC_DISPATCH(write_gradient_f32)(row, count, gradient, out);
  }
}

double element_at(int32_t dtype, const void* row, size_t index) {
  const void* from = element(dtype, row, index);
  if (dtype == DSC_DTYPE_F64) return *static_cast<const double*>(from);
  float wide = 0;
  cast(DSC_DTYPE_F32, &wide, dtype, from, 1);
  return static_cast<double>(wide);
}

void set_element(int32_t dtype, void* row, size_t index, double value) {
  void* to = const_cast<void*>(element(dtype, row, index));
  const auto narrow = static_cast<float>(value);
  if (dtype == DSC_DTYPE_F64)
    *static_cast<double*>(to) = value;
  else
    cast(dtype, to, DSC_DTYPE_F32, &narrow, 1);
}

}  // namespace dsc
#endif  // HWY_ONCE
