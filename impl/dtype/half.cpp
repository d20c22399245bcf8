// The reduction kernels of f16 and bf16, and their conversions from and to f32.
#include "dsc/types.h"
#include "dtype/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtype/half.cpp"
#include "hwy/foreach_target.h"
// These headers must be included after foreach_target.h.
#include "dtype/convert-inl.hpp"
#include "dtype/half-inl.hpp"
#include "dtype/reduce-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

void reduce_f16(const KernelArgs& args) { reduce_float<F16>(args); }
void reduce_bf16(const KernelArgs& args) { reduce_float<Bf16>(args); }

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
  if (dtype == DSC_DTYPE_F16) return HWY_DYNAMIC_DISPATCH(reduce_f16);
  if (dtype == DSC_DTYPE_BF16) return HWY_DYNAMIC_DISPATCH(reduce_bf16);
  return nullptr;
}

CastKernel half_cast_kernel(int32_t dtype, bool to_f32) {
  if (dtype == DSC_DTYPE_F16)
    return to_f32 ? HWY_DYNAMIC_DISPATCH(f32_from_f16) : HWY_DYNAMIC_DISPATCH(f16_from_f32);
  if (dtype == DSC_DTYPE_BF16)
    return to_f32 ? HWY_DYNAMIC_DISPATCH(f32_from_bf16) : HWY_DYNAMIC_DISPATCH(bf16_from_f32);
  return nullptr;
}

}  // namespace dsc
#endif
