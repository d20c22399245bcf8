// Element types as the kernels compute with them: how their bits widen to f32 (f64 to itself) and are rounded
// back, to nearest even. The same bits come out as from dtype/.
//
// Headers of this folder are read by nvcc and by a C++ compiler, and hold no call of CUDA: a kernel's body is
// told which thread it is, and runs on a CPU as well.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define DSC_HD __host__ __device__
#define DSC_NOT_UNROLLED _Pragma("unroll 1")
#else
#define DSC_HD
#define DSC_NOT_UNROLLED
#endif

namespace dsc::kernels {

template <class To, class From>
DSC_HD To bits_as(From value) {
  return __builtin_bit_cast(To, value);
}

// kNan is the positive quiet one without payload, which any NaN becomes.
struct F64 {
  using Stored = uint64_t;
  using Wide = double;
  static constexpr uint64_t kNan = 0x7ff8000000000000;

  DSC_HD static double widen(uint64_t bits) { return bits_as<double>(bits); }
  DSC_HD static uint64_t narrow(double v) { return v != v ? kNan : bits_as<uint64_t>(v); }
};

struct F32 {
  using Stored = uint32_t;
  using Wide = float;
  static constexpr uint32_t kNan = 0x7fc00000;

  DSC_HD static float widen(uint32_t bits) { return bits_as<float>(bits); }
  DSC_HD static uint32_t narrow(float v) { return v != v ? kNan : bits_as<uint32_t>(v); }
};

struct F16 {
  using Stored = uint16_t;
  using Wide = float;
  static constexpr uint16_t kNan = 0x7e00;

#ifdef __CUDA_ARCH__
  __device__ static float widen(uint16_t bits) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
  }

  __device__ static uint16_t narrow(float v) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    const bool is_nan = (bits & 0x7fff) > 0x7c00;
    return is_nan ? kNan : bits;
  }
#else
  DSC_HD static float widen(uint16_t bits) {
    const uint32_t magnitude = bits & 0x7fffu, sign = (bits ^ magnitude) << 16;
    if (magnitude > 0x7bff) return bits_as<float>(sign | magnitude << 13 | 0x7f800000);
    // Moves the exponent; right for denormals too.
    return bits_as<float>(sign | bits_as<uint32_t>(bits_as<float>(magnitude << 13) * 0x1p112f));
  }

  DSC_HD static uint16_t narrow(float v) {
    const uint32_t bits = bits_as<uint32_t>(v);
    const uint32_t magnitude = bits & 0x7fffffff, sign = (bits ^ magnitude) >> 16;
    uint32_t result;
    if (magnitude > 0x7f800000)
      return kNan;
    else if (magnitude > 0x477fffff)
      result = 0x7c00;
    else if (magnitude < 113u << 23)  // the addition rounds at the last place of an f16 denormal
      result = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - bits_as<uint32_t>(0.5f);
    else
      result = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    return static_cast<uint16_t>(sign | result);
  }
#endif
};

struct Bf16 {
  using Stored = uint16_t;
  using Wide = float;
  static constexpr uint16_t kNan = 0x7fc0;

  DSC_HD static float widen(uint16_t bits) { return bits_as<float>(static_cast<uint32_t>(bits) << 16); }

  DSC_HD static uint16_t narrow(float v) {
    const uint32_t bits = bits_as<uint32_t>(v);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? kNan : rounded);
  }
};

// Rounds to a type of 8 bits. kStored bits of fraction; what is too large becomes kTooLarge.
template <int kStored, int kBias, uint32_t kTooLarge, uint32_t kNan>
DSC_HD uint8_t narrow_to_8_bits(float v) {
  constexpr int kDropped = 23 - kStored;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;
  // An f32 whose last place is that of the denormals: adding it rounds there.
  constexpr uint32_t kUnit = static_cast<uint32_t>(151 - kBias - kStored) << 23;
  const uint32_t bits = bits_as<uint32_t>(v);
  const uint32_t magnitude = bits & 0x7fffffff, sign = (bits ^ magnitude) >> 24;
  const uint32_t rebased = magnitude - (kSmallestNormal - (1u << 23));
  const uint32_t normal = (rebased + ((1u << (kDropped - 1)) - 1) + (magnitude >> kDropped & 1)) >> kDropped;
  const uint32_t denormal = bits_as<uint32_t>(bits_as<float>(magnitude) + bits_as<float>(kUnit)) - kUnit;
  const uint32_t rounded = magnitude < kSmallestNormal ? denormal : normal;
  const uint32_t result = rounded > kTooLarge ? kTooLarge : rounded;
  return static_cast<uint8_t>(magnitude > 0x7f800000 || result == kNan ? kNan : sign | result);
}

// Without infinity: what is too large becomes NaN.
struct F8e4m3 {
  using Stored = uint8_t;
  using Wide = float;
  static constexpr uint8_t kNan = 0x7f;

  DSC_HD static float widen(uint8_t bits) {
    const uint32_t magnitude = bits & 0x7fu, sign = (bits ^ magnitude) << 8;
    const uint32_t half = magnitude == kNan ? 0x7e00u : sign | magnitude << 7;
    return F16::widen(static_cast<uint16_t>(half)) * 256.0f;  // the difference of the biases
  }

  DSC_HD static uint8_t narrow(float v) { return narrow_to_8_bits<3, 7, kNan, kNan>(v); }
};

// The upper half of an f16.
struct F8e5m2 {
  using Stored = uint8_t;
  using Wide = float;
  static constexpr uint8_t kNan = 0x7e;

  DSC_HD static float widen(uint8_t bits) { return F16::widen(static_cast<uint16_t>(bits << 8)); }
  DSC_HD static uint8_t narrow(float v) { return narrow_to_8_bits<2, 15, 0x7c, kNan>(v); }
};

DSC_HD inline bool is_finite(float v) { return (bits_as<uint32_t>(v) & 0x7f800000) != 0x7f800000; }
DSC_HD inline bool is_finite(double v) { return (bits_as<uint64_t>(v) >> 52 & 0x7ff) != 0x7ff; }

}  // namespace dsc::kernels
