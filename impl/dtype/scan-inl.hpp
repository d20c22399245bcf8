// Finds NaN and infinity: elements in which all bits of a mask are set.
#if defined(DSC_DTYPE_SCAN_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DSC_DTYPE_SCAN_INL_HPP
#undef DSC_DTYPE_SCAN_INL_HPP
#else
#define DSC_DTYPE_SCAN_INL_HPP
#endif

#include "dtype/lanes-inl.hpp"
#include "dtype/reduce.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// Adds the matching elements among [start, start + count) to the report, attributed to `source`.
template <typename T>
HWY_INLINE void scan(const void* array, size_t start, size_t count, T mask, int source, NonFinite& report) {
  const hn::ScalableTag<T> tag;
  const size_t lanes = hn::Lanes(tag);
  const T* elements = static_cast<const T*>(array) + start;
  const auto look = [&](const T* p, size_t at) HWY_ATTR {
    const auto found = hn::And(load_any(tag, p), hn::Set(tag, mask)) == hn::Set(tag, mask);
    if (HWY_LIKELY(hn::AllFalse(tag, found))) return;
    const auto first = static_cast<size_t>(hn::FindFirstTrue(tag, found));
    report.add({hn::CountTrue(tag, found), source, first}, start + at);
  };
  size_t at = 0;
  for (; count - at >= lanes; at += lanes) look(elements + at, at);
  if (at == count) return;
  HWY_ALIGN T rest[hn::MaxLanes(tag)] = {};
  std::memcpy(rest, elements + at, (count - at) * sizeof(T));
  look(rest, at);
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
