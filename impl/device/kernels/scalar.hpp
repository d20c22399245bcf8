// Element types as the kernels compute with them: how their bits are widened to f32 (f64 stays f64), and how
// results are rounded back to nearest even. Results are bit-identical to those of impl/dtype.
//
// The headers of this folder are compiled both by nvcc and by a C++ compiler, and call no CUDA function. The
// body of a kernel receives the index of its thread as an argument, so that unit tests can run it on a CPU.
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

// kNan is the positive quiet NaN without payload. Every NaN is rounded to it.
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
    // The multiplication moves the exponent from the bias of f16 to that of f32; it is exact for denormals
    // too.
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
    else if (magnitude < 113u << 23)  // adding 0.5f rounds at the last place of an f16 denormal
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

// Rounds to an 8-bit type with kStored bits of fraction; magnitudes that are too large become kTooLarge.
template <int kStored, int kBias, uint32_t kTooLarge, uint32_t kNan>
DSC_HD uint8_t narrow_to_8_bits(float v) {
  constexpr int kDropped = 23 - kStored;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;
  // The unit in the last place of this f32 equals that of the type's denormals, so adding this f32 rounds
  // correctly.
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

// F8e4m3 has no infinity: values that are too large become NaN.
struct F8e4m3 {
  using Stored = uint8_t;
  using Wide = float;
  static constexpr uint8_t kNan = 0x7f;

  DSC_HD static float widen(uint8_t bits) {
    const uint32_t magnitude = bits & 0x7fu, sign = (bits ^ magnitude) << 8;
    const uint32_t half = magnitude == kNan ? 0x7e00u : sign | magnitude << 7;
    // Multiplying by 2^8 corrects the difference of the exponent biases.
    return F16::widen(static_cast<uint16_t>(half)) * 256.0f;
  }

  DSC_HD static uint8_t narrow(float v) { return narrow_to_8_bits<3, 7, kNan, kNan>(v); }
};

// An F8e5m2 has the bits of the upper half of an f16.
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
