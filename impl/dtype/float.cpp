// The reduction kernels of f32 and f64.
#include "dsc/types.h"
#include "dtype/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtype/float.cpp"
#include "hwy/foreach_target.h"
// This header must be included after foreach_target.h.
#include "dtype/reduce-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

void reduce_f32(const KernelArgs& args) { reduce_float<Plain<float>>(args); }
void reduce_f64(const KernelArgs& args) { reduce_float<Plain<double>>(args); }

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(reduce_f32);
HWY_EXPORT(reduce_f64);

Kernel float_kernel(int32_t dtype) {
  switch (dtype) {
    case DSC_DTYPE_F32:
      return HWY_DYNAMIC_DISPATCH(reduce_f32);
    case DSC_DTYPE_F64:
      return HWY_DYNAMIC_DISPATCH(reduce_f64);
    default:
      return nullptr;
  }
}

}  // namespace dsc
#endif
