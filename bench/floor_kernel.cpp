#include "floor_kernel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "floor_kernel.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must be included first.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void scale_in_place(float* buffer, size_t count, float factor, bool non_temporal) {
  const hn::ScalableTag<float> f32;
  const auto factors = hn::Set(f32, factor);
  const size_t lanes = hn::Lanes(f32);
  size_t i = 0;
  if (non_temporal) {
    for (; i + lanes <= count; i += lanes)
      hn::Stream(hn::Mul(factors, hn::Load(f32, buffer + i)), f32, buffer + i);
    hwy::FlushStream();
  } else {
    for (; i + lanes <= count; i += lanes)
      hn::Store(hn::Mul(factors, hn::Load(f32, buffer + i)), f32, buffer + i);
  }
  for (; i < count; ++i) buffer[i] *= factor;
}

}  // namespace bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bench {

HWY_EXPORT(scale_in_place);

void scale_in_place(float* buffer, size_t count, float factor, bool non_temporal) {
  HWY_DYNAMIC_DISPATCH(scale_in_place)(buffer, count, factor, non_temporal);
}

}  // namespace bench
#endif
