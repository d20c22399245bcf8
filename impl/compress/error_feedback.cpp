#include "compress/error_feedback.hpp"

#include "dtype/fp_mode.hpp"

#ifndef HWY_TARGET_INCLUDE  // kernels.cpp defines this macro and includes this file
#define HWY_TARGET_INCLUDE "compress/error_feedback.cpp"
#endif
#include "hwy/foreach_target.h"
// This header must be included after foreach_target.h.
#include "compress/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

struct KeepError {
  HWY_INLINE void operator()(const float* sent, float* error) const {
    const F32 f;
    const auto rest = hn::LoadU(f, error) - hn::LoadU(f, sent);
    hn::StoreU(hn::IfThenElseZero(hn::IsFinite(rest), rest), f, error);
  }
};

void keep(float* error, const float* sent, size_t count) { for_each_vector(sent, error, count, KeepError()); }

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(keep);

void keep_error(float* error, const float* sent, size_t count) {
  const FpMode mode;
  HWY_DYNAMIC_DISPATCH(keep)(error, sent, count);
}

}  // namespace dsc
#endif
