#include "compress/onebit.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "dtype/fp_mode.hpp"

#ifndef HWY_TARGET_INCLUDE  // kernels.cpp defines this macro and includes this file
#define HWY_TARGET_INCLUDE "compress/onebit.cpp"
#endif
#include "hwy/foreach_target.h"
// This header must be included after foreach_target.h.
#include "compress/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// Reverses the bits of each byte, because a vector mask has its first lane in the lowest bit, and the format
// has the first element in the highest bit.
HWY_INLINE uint64_t with_reversed_bytes(uint64_t x) {
  x = (x >> 1 & 0x5555555555555555) | (x & 0x5555555555555555) << 1;
  x = (x >> 2 & 0x3333333333333333) | (x & 0x3333333333333333) << 2;
  return (x >> 4 & 0x0f0f0f0f0f0f0f0f) | (x & 0x0f0f0f0f0f0f0f0f) << 4;
}

// Adds the values to the error. Returns the sum of the squares of the results.
double add_to_error(const float* values, size_t count, float* error, size_t error_count) {
  Sums<double> sums;
  size_t at = 0;
  for (; count - at >= kSums; at += kSums) {
#pragma GCC unroll 16
    for (size_t v = 0; v < Sums<double>::kVectors; ++v) {
      const HalfOfF32 half;
      float* const e = error + at + v * kF64Lanes;
      const auto result = hn::LoadU(half, e) + hn::LoadU(half, values + at + v * kF64Lanes);
      hn::StoreU(result, half, e);
      const auto wide = hn::PromoteTo(F64(), result);
      sums.add(v, wide * wide);
    }
  }
  double rest[kSums];
  sums.store(rest);
  for (; at < error_count; ++at) {
    if (at < count) error[at] += values[at];
    rest[at % kSums] += static_cast<double>(error[at]) * error[at];
  }
  return folded(rest);
}

// Writes the signs of `error` to `bits`, and subtracts scale * sign from `error`.
void take_signs(float* error, size_t count, float scale, uint8_t* bits) {
  const F32 f;
  const I32 i;
  size_t at = 0;
  for (; count - at >= 64; at += 64) {
    uint64_t negative = 0;
#pragma GCC unroll 16
    for (size_t j = 0; j < 64; j += kF32Lanes) {
      const auto v = hn::LoadU(f, error + at + j);
      negative |= bits_of(i, hn::BitCast(i, v) < hn::Zero(i)) << j;
      hn::StoreU(v - hn::CopySign(hn::Set(f, scale), v), f, error + at + j);
    }
    const uint64_t packed = ~with_reversed_bytes(negative);
    std::memcpy(bits + at / 8, &packed, sizeof packed);
  }
  for (; at < count; at += 8) {
    unsigned byte = 0;
    for (size_t j = 0; j < 8; ++j) {
      const bool negative = std::signbit(error[at + j]);
      byte = byte << 1 | (negative ? 0u : 1u);
      error[at + j] -= std::copysign(scale, error[at + j]);
    }
    bits[at / 8] = static_cast<uint8_t>(byte);
  }
}

// Computes scale * sign for each element. `bits` must have at least count / 8 bytes, rounded up.
template <bool kAdd>
HWY_INLINE void spread_signs(const uint8_t* bits, float scale, float* out, size_t count) {
  const F32 f;
  const auto positive = hn::Set(f, scale), negative = hn::Neg(positive);
  size_t at = 0;
  for (; count - at >= 64; at += 64) {
    uint64_t signs;
    std::memcpy(&signs, bits + at / 8, sizeof signs);
    signs = with_reversed_bytes(signs);
#pragma GCC unroll 16
    for (size_t j = 0; j < 64; j += kF32Lanes) {
      const uint64_t lanes = signs >> j;
      uint8_t bytes[8];
      std::memcpy(bytes, &lanes, sizeof bytes);
      store_or_add<kAdd>(hn::IfThenElse(hn::LoadMaskBits(f, bytes), positive, negative), out + at + j);
    }
  }
  for (; at < count; ++at) {
    const bool is_positive = (bits[at / 8] >> (7 - at % 8) & 1) != 0;
    const float addend = is_positive ? scale : -scale;
    out[at] = kAdd ? out[at] + addend : addend;
  }
}

void add_spread_signs(const uint8_t* bits, float scale, float* out, size_t count) {
  spread_signs<true>(bits, scale, out, count);
}
void store_spread_signs(const uint8_t* bits, float scale, float* out, size_t count) {
  spread_signs<false>(bits, scale, out, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

static_assert(std::endian::native == std::endian::little, "bytes of signs are moved in words of 64 bits");

HWY_EXPORT(add_to_error);
HWY_EXPORT(take_signs);
HWY_EXPORT(add_spread_signs);
HWY_EXPORT(store_spread_signs);

size_t onebit_padded(size_t count, size_t ranks) {
  const size_t unit = ranks * (8 * ranks / std::gcd(ranks, size_t{8}));
  return (count + unit - 1) / unit * unit;
}

float compress_signs(std::span<const float> values, std::span<float> error, std::span<uint8_t> bits) {
  if (error.empty()) return 0;
  const FpMode mode;
  const double squares =
      HWY_DYNAMIC_DISPATCH(add_to_error)(values.data(), values.size(), error.data(), error.size());
  const auto scale = static_cast<float>(std::sqrt(squares / static_cast<double>(error.size())));
  HWY_DYNAMIC_DISPATCH(take_signs)(error.data(), error.size(), scale, bits.data());
  return scale;
}

void add_signs(std::span<const uint8_t> bits, float scale, std::span<float> sum) {
  const FpMode mode;
  HWY_DYNAMIC_DISPATCH(add_spread_signs)(bits.data(), scale, sum.data(), sum.size());
}

void expand_signs(std::span<const uint8_t> bits, float scale, std::span<float> out) {
  const FpMode mode;
  HWY_DYNAMIC_DISPATCH(store_spread_signs)(bits.data(), scale, out.data(), out.size());
}

}  // namespace dsc
#endif
