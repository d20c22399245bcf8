// The reduction kernels of the 8-bit floats, and their conversions from and to f32.
#include "dsc/types.h"
#include "dtype/kernels.hpp"

// Compiled for the baseline instruction set only: 8-bit floats are rare on hosts, and their conversion tables
// take long to compile.
#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtype/float8.cpp"
#include "hwy/foreach_target.h"
// These headers must be included after foreach_target.h.
#include "dtype/convert-inl.hpp"
#include "dtype/float8-inl.hpp"
#include "dtype/reduce-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

void reduce_f8e4m3(const KernelArgs& args) { reduce_float<E4m3>(args); }
void reduce_f8e5m2(const KernelArgs& args) { reduce_float<E5m2>(args); }

void f8e4m3_from_f32(void* dst, const void* src, size_t count) {
  convert<E4m3, Plain<float>>(dst, src, count);
}
void f32_from_f8e4m3(void* dst, const void* src, size_t count) {
  convert<Plain<float>, E4m3>(dst, src, count);
}
void f8e5m2_from_f32(void* dst, const void* src, size_t count) {
  convert<E5m2, Plain<float>>(dst, src, count);
}
void f32_from_f8e5m2(void* dst, const void* src, size_t count) {
  convert<Plain<float>, E5m2>(dst, src, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(reduce_f8e4m3);
HWY_EXPORT(reduce_f8e5m2);
HWY_EXPORT(f8e4m3_from_f32);
HWY_EXPORT(f32_from_f8e4m3);
HWY_EXPORT(f8e5m2_from_f32);
HWY_EXPORT(f32_from_f8e5m2);

Kernel float8_kernel(int32_t dtype) {
  if (dtype == DSC_DTYPE_F8E4M3) return HWY_DYNAMIC_DISPATCH(reduce_f8e4m3);
  if (dtype == DSC_DTYPE_F8E5M2) return HWY_DYNAMIC_DISPATCH(reduce_f8e5m2);
  return nullptr;
}

CastKernel float8_cast_kernel(int32_t dtype, bool to_f32) {
  if (dtype == DSC_DTYPE_F8E4M3)
    return to_f32 ? HWY_DYNAMIC_DISPATCH(f32_from_f8e4m3) : HWY_DYNAMIC_DISPATCH(f8e4m3_from_f32);
  if (dtype == DSC_DTYPE_F8E5M2)
    return to_f32 ? HWY_DYNAMIC_DISPATCH(f32_from_f8e5m2) : HWY_DYNAMIC_DISPATCH(f8e5m2_from_f32);
  return nullptr;
}

}  // namespace dsc
#endif
