#include "expert_parallel/row_sums.hpp"

#include <algorithm>
#include <array>

#include "dsc/types.h"
#include "dtype/fp_mode.hpp"
#include "dtype/reduce.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expert_parallel/row_sums.cpp"
#include "hwy/foreach_target.h"
// Highway requires this include after foreach_target.h.
#include "dtype/logits-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// Computes the sum of one vector of elements. `kWeighs` is false if all weights are 1.
template <class Rows, bool kWeighs, typename Element = typename Rows::Element>
HWY_INLINE void sum_vector(const Element* const* rows, const typename Rows::Number* weights, size_t row_count,
                           size_t at, Element* out) {
  const typename Rows::Tag d;
  const auto term = [&](size_t row) HWY_ATTR {
    const auto v = Rows::load(rows[row] + at);
    if constexpr (kWeighs) {
      return v * hn::Set(d, weights[row]);
    } else {
      return v;
    }
  };
  auto sum = term(0);
  for (size_t row = 1; row < row_count; ++row) sum = sum + term(row);
  Rows::store(sum, out);
}

template <class Rows, bool kWeighs>
HWY_INLINE void sum_rows_of(const void* const* rows, const void* weights, size_t row_count, size_t elements,
                            void* result) {
  using Element = typename Rows::Element;
  constexpr size_t kMaxLanes = hn::MaxLanes(typename Rows::Tag());
  const size_t lanes = hn::Lanes(typename Rows::Tag());
  const auto* const* from = reinterpret_cast<const Element* const*>(rows);
  const auto* factors = static_cast<const typename Rows::Number*>(weights);
  auto* out = static_cast<Element*>(result);
  size_t at = 0;
  for (; elements - at >= lanes; at += lanes)
    sum_vector<Rows, kWeighs>(from, factors, row_count, at, out + at);
  if (at == elements) return;
  Element last[64][kMaxLanes] = {};
  const Element* ends[64] = {};
  for (size_t row = 0; row < row_count; ++row) {
    std::copy_n(from[row] + at, elements - at, last[row]);
    ends[row] = last[row];
  }
  Element sums[kMaxLanes] = {};
  sum_vector<Rows, kWeighs>(ends, factors, row_count, 0, sums);
  std::copy_n(sums, elements - at, out + at);
}

template <class Rows>
HWY_INLINE void sum_any(const void* const* rows, const void* weights, size_t row_count, size_t elements,
                        void* out) {
  if (weights)
    sum_rows_of<Rows, true>(rows, weights, row_count, elements, out);
  else
    sum_rows_of<Rows, false>(rows, weights, row_count, elements, out);
}

void sum_rows_f32(const void* const* rows, const void* weights, size_t row_count, size_t elements,
                  void* out) {
  sum_any<PlainLogits<float>>(rows, weights, row_count, elements, out);
}
void sum_rows_f64(const void* const* rows, const void* weights, size_t row_count, size_t elements,
                  void* out) {
  sum_any<PlainLogits<double>>(rows, weights, row_count, elements, out);
}
void sum_rows_f16(const void* const* rows, const void* weights, size_t row_count, size_t elements,
                  void* out) {
  sum_any<F16Logits>(rows, weights, row_count, elements, out);
}
void sum_rows_bf16(const void* const* rows, const void* weights, size_t row_count, size_t elements,
                   void* out) {
  sum_any<Bf16Logits>(rows, weights, row_count, elements, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(sum_rows_f32);
HWY_EXPORT(sum_rows_f64);
HWY_EXPORT(sum_rows_f16);
HWY_EXPORT(sum_rows_bf16);

namespace {

// Products are added to several sums in turn, so that one addition does not have to wait for the previous
// one.
using PartialSums = std::array<double, 8>;

template <typename Number>
void add_products(const Number* row, const Number* other, size_t count, PartialSums& sums) {
  size_t i = 0;
  for (; i + sums.size() <= count; i += sums.size())
    for (size_t j = 0; j < sums.size(); ++j)
      sums[j] += static_cast<double>(row[i + j]) * static_cast<double>(other[i + j]);
  for (size_t j = 0; i + j < count; ++j)
    sums[j] += static_cast<double>(row[i + j]) * static_cast<double>(other[i + j]);
}

void add_narrow_products(int32_t dtype, const std::byte* row, const std::byte* other, size_t elements,
                         PartialSums& sums) {
  constexpr size_t kPart = 256;
  float a[kPart], b[kPart];
  for (size_t at = 0; at < elements; at += kPart) {
    const size_t count = std::min(kPart, elements - at);
    cast(DSC_DTYPE_F32, a, dtype, row + at * dtype_bytes(dtype), count);
    cast(DSC_DTYPE_F32, b, dtype, other + at * dtype_bytes(dtype), count);
    add_products(a, b, count, sums);
  }
}

}  // namespace

size_t weight_bytes(int32_t dtype) noexcept {
  return dtype == DSC_DTYPE_F64 ? sizeof(double) : sizeof(float);
}

void sum_rows(int32_t dtype, const void* const* rows, const void* weights, size_t row_count, size_t elements,
              void* out) {
  const FpMode mode;
  switch (dtype) {
    case DSC_DTYPE_F64:
      return HWY_DYNAMIC_DISPATCH(sum_rows_f64)(rows, weights, row_count, elements, out);
    case DSC_DTYPE_F16:
      return HWY_DYNAMIC_DISPATCH(sum_rows_f16)(rows, weights, row_count, elements, out);
    case DSC_DTYPE_BF16:
      return HWY_DYNAMIC_DISPATCH(sum_rows_bf16)(rows, weights, row_count, elements, out);
    default:
      return HWY_DYNAMIC_DISPATCH(sum_rows_f32)(rows, weights, row_count, elements, out);
  }
}

void multiply_rows(int32_t dtype, const void* row, const void* other, size_t elements, void* weight) {
  const FpMode mode;
  PartialSums sums{};
  if (dtype == DSC_DTYPE_F64)
    add_products(static_cast<const double*>(row), static_cast<const double*>(other), elements, sums);
  else
    add_narrow_products(dtype, static_cast<const std::byte*>(row), static_cast<const std::byte*>(other),
                        elements, sums);
  double total = 0;
  for (const double sum : sums) total += sum;
  if (dtype == DSC_DTYPE_F64)
    *static_cast<double*>(weight) = total;
  else
    *static_cast<float*>(weight) = static_cast<float>(total);
}

}  // namespace dsc
#endif  // HWY_ONCE
