// Finds NaN and infinity: elements of which all bits of a mask are set.
#include "dsc/types.h"
#include "dtype/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtype/scan.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "dtype/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void scan(const void* array, size_t count, int source, T mask, NonFinite& report) {
  const hn::ScalableTag<T> tag;
  const size_t lanes = hn::Lanes(tag);
  const T* elements = static_cast<const T*>(array);
  const auto look = [&](const T* p, size_t at) HWY_ATTR {
    const auto found = hn::And(load_any(tag, p), hn::Set(tag, mask)) == hn::Set(tag, mask);
    if (HWY_LIKELY(hn::AllFalse(tag, found))) return;
    report.add({hn::CountTrue(tag, found), source, static_cast<size_t>(hn::FindFirstTrue(tag, found))}, at);
  };
  size_t at = 0;
  for (; count - at >= lanes; at += lanes) look(elements + at, at);
  if (at == count) return;
  HWY_ALIGN T rest[hn::MaxLanes(tag)] = {};
  std::memcpy(rest, elements + at, (count - at) * sizeof(T));
  look(rest, at);
}

void scan_f8e4m3(const void* array, size_t count, int source, NonFinite& report) {
  scan<uint8_t>(array, count, source, 0x7f, report);  // no infinity
}
void scan_f8e5m2(const void* array, size_t count, int source, NonFinite& report) {
  scan<uint8_t>(array, count, source, 0x7c, report);
}
void scan_f16(const void* array, size_t count, int source, NonFinite& report) {
  scan<uint16_t>(array, count, source, 0x7c00, report);
}
void scan_bf16(const void* array, size_t count, int source, NonFinite& report) {
  scan<uint16_t>(array, count, source, 0x7f80, report);
}
void scan_f32(const void* array, size_t count, int source, NonFinite& report) {
  scan<uint32_t>(array, count, source, 0x7f800000, report);
}
void scan_f64(const void* array, size_t count, int source, NonFinite& report) {
  scan<uint64_t>(array, count, source, 0x7ff0000000000000, report);
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(scan_f8e4m3);
HWY_EXPORT(scan_f8e5m2);
HWY_EXPORT(scan_f16);
HWY_EXPORT(scan_bf16);
HWY_EXPORT(scan_f32);
HWY_EXPORT(scan_f64);

ScanKernel scan_kernel(int32_t dtype) {
  switch (dtype) {
    case DSC_DTYPE_F8E4M3:
      return HWY_DYNAMIC_DISPATCH(scan_f8e4m3);
    case DSC_DTYPE_F8E5M2:
      return HWY_DYNAMIC_DISPATCH(scan_f8e5m2);
    case DSC_DTYPE_F16:
      return HWY_DYNAMIC_DISPATCH(scan_f16);
    case DSC_DTYPE_BF16:
      return HWY_DYNAMIC_DISPATCH(scan_bf16);
    case DSC_DTYPE_F32:
      return HWY_DYNAMIC_DISPATCH(scan_f32);
    case DSC_DTYPE_F64:
      return HWY_DYNAMIC_DISPATCH(scan_f64);
    default:
      return nullptr;
  }
}

}  // namespace dsc
#endif
