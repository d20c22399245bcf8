#include "compress/scaled_fp8.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "dsc/types.h"
#include "dtype/fp_mode.hpp"

#ifndef HWY_TARGET_INCLUDE  // kernels.cpp defines this macro and includes this file
#define HWY_TARGET_INCLUDE "compress/scaled_fp8.cpp"
#endif
#include "hwy/foreach_target.h"
// These headers must be included after foreach_target.h.
#include "compress/vectors-inl.hpp"
#include "dtype/float8-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

template <class Format>
struct ToFp8 {
  float scale;
  float most;  // the largest finite number of the format

  HWY_INLINE void operator()(const float* in, uint8_t* out) const {
    const F32 f;
    const auto x = canonical(hn::LoadU(f, in) * hn::Set(f, scale));
    const auto clamped = hn::Max(hn::Min(x, hn::Set(f, most)), hn::Set(f, -most));
    const auto kept = hn::IfThenElse(hn::IsNaN(x), x, clamped);
    hn::StoreU(Format::narrow(kept), typename Format::Packed(), out);
  }
};

template <class Format, bool kAdd>
struct FromFp8 {
  float scale;

  HWY_INLINE void operator()(const uint8_t* in, float* out) const {
    const auto v = Format::widen(hn::LoadU(typename Format::Packed(), in));
    store_or_add<kAdd>(v * hn::Set(F32(), scale), out);
  }
};

void e4m3_from_f32(const float* in, size_t count, float scale, uint8_t* out) {
  for_each_vector(in, out, count, ToFp8<E4m3>{scale, 448.0f});
}
void e5m2_from_f32(const float* in, size_t count, float scale, uint8_t* out) {
  for_each_vector(in, out, count, ToFp8<E5m2>{scale, 57344.0f});
}

template <class Format>
HWY_INLINE void to_f32(const uint8_t* in, size_t count, float scale, float* out, bool add) {
  if (add) return for_each_vector(in, out, count, FromFp8<Format, true>{scale});
  for_each_vector(in, out, count, FromFp8<Format, false>{scale});
}
void f32_from_e4m3(const uint8_t* in, size_t count, float scale, float* out, bool add) {
  to_f32<E4m3>(in, count, scale, out, add);
}
void f32_from_e5m2(const uint8_t* in, size_t count, float scale, float* out, bool add) {
  to_f32<E5m2>(in, count, scale, out, add);
}

// Returns the bits of the largest magnitude. Bits of magnitudes have the same order as the magnitudes, and
// NaN is above infinity, so NaN needs no separate check.
uint32_t max_magnitude_bits(const float* values, size_t count) {
  const I32 i;
  const auto magnitude = hn::Set(i, 0x7fffffff);
  const auto load = [&](size_t at) HWY_ATTR {
    return hn::And(hn::BitCast(i, hn::LoadU(F32(), values + at)), magnitude);
  };
  // Compute four maxima, so that consecutive instructions do not wait for each other.
  auto a = hn::Zero(i), b = a, c = a, d = a;
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

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(e4m3_from_f32);
HWY_EXPORT(e5m2_from_f32);
HWY_EXPORT(f32_from_e4m3);
HWY_EXPORT(f32_from_e5m2);
HWY_EXPORT(max_magnitude_bits);

float max_magnitude(std::span<const float> values) {
  const uint32_t bits = HWY_DYNAMIC_DISPATCH(max_magnitude_bits)(values.data(), values.size());
  constexpr uint32_t kInfinity = 0x7f800000;
  return bits > kInfinity ? std::numeric_limits<float>::quiet_NaN() : std::bit_cast<float>(bits);
}

void to_fp8(int32_t dtype, std::span<const float> values, float scale, std::span<uint8_t> out) {
  const FpMode mode;
  const auto convert =
      dtype == DSC_DTYPE_F8E4M3 ? HWY_DYNAMIC_DISPATCH(e4m3_from_f32) : HWY_DYNAMIC_DISPATCH(e5m2_from_f32);
  convert(values.data(), values.size(), scale, out.data());
}

void from_fp8(int32_t dtype, std::span<const uint8_t> in, float scale, std::span<float> out, bool add) {
  const FpMode mode;
  const auto convert =
      dtype == DSC_DTYPE_F8E4M3 ? HWY_DYNAMIC_DISPATCH(f32_from_e4m3) : HWY_DYNAMIC_DISPATCH(f32_from_e5m2);
  convert(in.data(), in.size(), scale, out.data(), add);
}

}  // namespace dsc
#endif
