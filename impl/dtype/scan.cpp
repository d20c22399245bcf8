// Kernels that find NaN and infinity in whole arrays.
#include "dsc/types.h"
#include "dtype/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtype/scan.cpp"
#include "hwy/foreach_target.h"
// This header must be included after foreach_target.h.
#include "dtype/scan-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

void scan_f8e4m3(const void* array, size_t count, int source, NonFinite& report) {
  scan<uint8_t>(array, 0, count, 0x7f, source, report);  // f8e4m3 has no infinity
}
void scan_f8e5m2(const void* array, size_t count, int source, NonFinite& report) {
  scan<uint8_t>(array, 0, count, 0x7c, source, report);
}
void scan_f16(const void* array, size_t count, int source, NonFinite& report) {
  scan<uint16_t>(array, 0, count, 0x7c00, source, report);
}
void scan_bf16(const void* array, size_t count, int source, NonFinite& report) {
  scan<uint16_t>(array, 0, count, 0x7f80, source, report);
}
void scan_f32(const void* array, size_t count, int source, NonFinite& report) {
  scan<uint32_t>(array, 0, count, 0x7f800000, source, report);
}
void scan_f64(const void* array, size_t count, int source, NonFinite& report) {
  scan<uint64_t>(array, 0, count, 0x7ff0000000000000, source, report);
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
