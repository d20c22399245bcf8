#include "floor_kernel.hpp"

#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "floor_kernel.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must be included first.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;

template <class Store>
void sum_with(const Store& store, const float* const* from, size_t sources, float* const* to, size_t targets,
              size_t count) {
  const F32 f32;
  const size_t lanes = hn::Lanes(f32);
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const float* p = from[0] + i;
    auto a = hn::LoadU(f32, p), b = hn::LoadU(f32, p + lanes);
    auto c = hn::LoadU(f32, p + 2 * lanes), d = hn::LoadU(f32, p + 3 * lanes);
    for (size_t s = 1; s < sources; ++s) {
      p = from[s] + i;
      a = hn::Add(a, hn::LoadU(f32, p));
      b = hn::Add(b, hn::LoadU(f32, p + lanes));
      c = hn::Add(c, hn::LoadU(f32, p + 2 * lanes));
      d = hn::Add(d, hn::LoadU(f32, p + 3 * lanes));
    }
    for (size_t t = 0; t < targets; ++t) {
      float* const q = to[t] + i;
      store(a, q);
      store(b, q + lanes);
      store(c, q + 2 * lanes);
      store(d, q + 3 * lanes);
    }
  }
  for (; i < count; ++i) {
    float total = from[0][i];
    for (size_t s = 1; s < sources; ++s) total += from[s][i];
    for (size_t t = 0; t < targets; ++t) to[t][i] = total;
  }
}

void sum(const float* const* from, size_t sources, float* const* to, size_t targets, size_t count,
         bool non_temporal) {
  const F32 f32;
  const auto aligned = [&](const float* array) {
    return reinterpret_cast<uintptr_t>(array) % (hn::Lanes(f32) * sizeof(float)) == 0;
  };
  if (non_temporal && std::all_of(to, to + targets, aligned)) {
    sum_with([&](auto v, float* p) { hn::Stream(v, f32, p); }, from, sources, to, targets, count);
    hwy::FlushStream();
  } else {
    sum_with([&](auto v, float* p) { hn::StoreU(v, f32, p); }, from, sources, to, targets, count);
  }
}

}  // namespace bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bench {

HWY_EXPORT(sum);

void sum(const float* const* from, size_t sources, float* const* to, size_t targets, size_t count,
         bool non_temporal) {
  HWY_DYNAMIC_DISPATCH(sum)(from, sources, to, targets, count, non_temporal);
}

}  // namespace bench
#endif
