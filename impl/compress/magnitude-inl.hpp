// The largest magnitude of an array. Compiled once per instruction set, so the include guard is Highway's
// toggle.
#if defined(DSC_COMPRESS_MAGNITUDE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DSC_COMPRESS_MAGNITUDE_INL_HPP
#undef DSC_COMPRESS_MAGNITUDE_INL_HPP
#else
#define DSC_COMPRESS_MAGNITUDE_INL_HPP
#endif

#include <algorithm>

#include "compress/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

inline constexpr uint32_t kInfinityBits = 0x7f800000;

// Returns the bits of the largest magnitude. Magnitudes are ordered as their bits are, and NaN is above
// infinity, so that it is found without another look.
HWY_INLINE uint32_t max_magnitude_bits(const float* values, size_t count) {
  const I32 i;
  const auto magnitude = hn::Set(i, 0x7fffffff);
  const auto load = [&](size_t at) HWY_ATTR {
    return hn::And(hn::BitCast(i, hn::LoadU(F32(), values + at)), magnitude);
  };
  auto a = hn::Zero(i), b = a, c = a, d = a;  // four at once, so that they need not wait for each other
  size_t at = 0;
  for (; count - at >= 4 * kF32Lanes; at += 4 * kF32Lanes) {
    a = hn::Max(a, load(at));
    b = hn::Max(b, load(at + kF32Lanes));
    c = hn::Max(c, load(at + 2 * kF32Lanes));
    d = hn::Max(d, load(at + 3 * kF32Lanes));
  }
  const auto both = hn::Max(hn::Max(a, b), hn::Max(c, d));
  auto most = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(i, both)));
  for (; at < count; ++at) {
    uint32_t bits;
    std::memcpy(&bits, values + at, sizeof bits);
    most = std::max(most, bits & 0x7fffffff);
  }
  return most;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
