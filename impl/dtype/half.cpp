// f16 and bf16, and their conversions from and to f32.
#include "dsc/types.h"
#include "dtype/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtype/half.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "dtype/reduce-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

void reduce_f16(const KernelArgs& args) { reduce_float<F16>(args); }
void reduce_bf16(const KernelArgs& args) { reduce_float<Bf16>(args); }

// From and To order their elements alike.
template <class To, class From>
HWY_INLINE void convert(void* dst, const void* src, size_t count) {
  using In = typename From::Element;
  using Out = typename To::Element;
  constexpr size_t kMaxElements = 4 * hn::MaxLanes(hn::ScalableTag<float>());
  HWY_ALIGN In in[kMaxElements] = {};
  HWY_ALIGN Out out[kMaxElements];
  const size_t step = 4 * hn::Lanes(hn::ScalableTag<float>());
  for (size_t at = 0; at < count; at += step) {
    const size_t n = std::min(step, count - at);
    std::memcpy(in, static_cast<const In*>(src) + at, n * sizeof(In));
    const auto quad = From::load(in);
    To::template store<false>(each(Canonical(), quad, quad.a), out);
    std::memcpy(static_cast<Out*>(dst) + at, out, n * sizeof(Out));
  }
}

void f16_from_f32(void* dst, const void* src, size_t count) { convert<F16, Plain<float>>(dst, src, count); }
void f32_from_f16(void* dst, const void* src, size_t count) { convert<Plain<float>, F16>(dst, src, count); }
void bf16_from_f32(void* dst, const void* src, size_t count) { convert<Bf16, F32Pairs>(dst, src, count); }
void f32_from_bf16(void* dst, const void* src, size_t count) { convert<F32Pairs, Bf16>(dst, src, count); }

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(reduce_f16);
HWY_EXPORT(reduce_bf16);
HWY_EXPORT(f16_from_f32);
HWY_EXPORT(f32_from_f16);
HWY_EXPORT(bf16_from_f32);
HWY_EXPORT(f32_from_bf16);

Kernel half_kernel(int32_t dtype) {
  switch (dtype) {
    case DSC_DTYPE_F16:
      return HWY_DYNAMIC_DISPATCH(reduce_f16);
    case DSC_DTYPE_BF16:
      return HWY_DYNAMIC_DISPATCH(reduce_bf16);
    default:
      return nullptr;
  }
}

CastKernel cast_kernel(int32_t dst_dtype, int32_t src_dtype) {
  if (src_dtype == DSC_DTYPE_F32 && dst_dtype == DSC_DTYPE_F16) return HWY_DYNAMIC_DISPATCH(f16_from_f32);
  if (src_dtype == DSC_DTYPE_F32 && dst_dtype == DSC_DTYPE_BF16) return HWY_DYNAMIC_DISPATCH(bf16_from_f32);
  if (src_dtype == DSC_DTYPE_F16 && dst_dtype == DSC_DTYPE_F32) return HWY_DYNAMIC_DISPATCH(f32_from_f16);
  if (src_dtype == DSC_DTYPE_BF16 && dst_dtype == DSC_DTYPE_F32) return HWY_DYNAMIC_DISPATCH(f32_from_bf16);
  return nullptr;
}

}  // namespace dsc
#endif
