// Conversion between arrays of two element types that share an accumulation type.
#if defined(DSC_DTYPE_CONVERT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DSC_DTYPE_CONVERT_INL_HPP
#undef DSC_DTYPE_CONVERT_INL_HPP
#else
#define DSC_DTYPE_CONVERT_INL_HPP
#endif

#include <algorithm>

#include "dtype/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// Requires that From and To order the elements of a Quad in the same way.
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
    To::template store<false>(To::pack(canonical(From::load(in))), out);
    std::memcpy(static_cast<Out*>(dst) + at, out, n * sizeof(Out));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
