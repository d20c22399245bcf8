#include "compress/blocks.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "compress/scaled_fp8.hpp"
#include "dtype/fp_mode.hpp"

#ifndef HWY_TARGET_INCLUDE  // kernels.cpp defines this macro and includes this file
#define HWY_TARGET_INCLUDE "compress/blocks.cpp"
#endif
#include "hwy/foreach_target.h"
// This header must be included after foreach_target.h.
#include "compress/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

using I8 = hn::Rebind<int8_t, I32>;

// Rounds and clamps x * scale, which must be below 2^22. It rounds by adding a number whose unit in the last
// place is 1, because in Highway without vectors NearestInt() rounds 0.49999997 to 1.
template <int kBits>
struct Quantise {
  float scale;

  HWY_INLINE void operator()(const float* in, int8_t* out) const {
    constexpr float kOnes = 0x1.8p23f;
    const F32 f;
    const I32 i;
    const auto rounded = hn::LoadU(f, in) * hn::Set(f, scale) + hn::Set(f, kOnes);
    auto q = hn::BitCast(i, rounded) - hn::BitCast(i, hn::Set(f, kOnes));
    q = hn::Min(q, hn::Set(i, (1 << (kBits - 1)) - 1));
    q = hn::Max(q, hn::Set(i, -(1 << (kBits - 1))));
    hn::StoreU(hn::DemoteTo(I8(), q), I8(), out);
  }
};

template <bool kAdd>
struct Dequantise {
  float scale;

  HWY_INLINE void operator()(const int8_t* in, float* out) const {
    const auto q = hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::LoadU(I8(), in)));
    store_or_add<kAdd>(q * hn::Set(F32(), scale), out);
  }
};

// 4-bit elements are first computed as bytes, part by part, and then packed.
constexpr size_t kPart = 512;

#if HWY_TARGET != HWY_SCALAR
using U16 = hn::ScalableTag<uint16_t>;
using LowerBytes = hn::Rebind<uint8_t, U16>;
#endif

// Packs pairs of bytes into one byte each, the first one in the high half.
HWY_INLINE void pack_halves(const int8_t* bytes, size_t pairs, uint8_t* packed) {
  size_t at = 0;
#if HWY_TARGET != HWY_SCALAR
  const U16 u;
  const hn::RebindToSigned<U16> i;
  const auto half = hn::Set(u, 15);
  for (; pairs - at >= hn::Lanes(u); at += hn::Lanes(u)) {
    const auto pair = hn::BitCast(u, hn::LoadU(hn::Repartition<int8_t, U16>(), bytes + 2 * at));
    const auto both = hn::Or(hn::ShiftLeft<4>(hn::And(pair, half)), hn::And(hn::ShiftRight<8>(pair), half));
    hn::StoreU(hn::DemoteTo(LowerBytes(), hn::BitCast(i, both)), LowerBytes(), packed + at);
  }
#endif
  for (; at < pairs; ++at)
    packed[at] = static_cast<uint8_t>((bytes[2 * at] & 15) << 4 | (bytes[2 * at + 1] & 15));
}

// Undoes pack_halves(). (x ^ 8) - 8 extends the sign.
HWY_INLINE void unpack_halves(const uint8_t* packed, size_t pairs, int8_t* bytes) {
  size_t at = 0;
#if HWY_TARGET != HWY_SCALAR
  const U16 u;
  const hn::Repartition<int8_t, U16> i;
  const auto eight = hn::Set(i, 8);
  for (; pairs - at >= hn::Lanes(u); at += hn::Lanes(u)) {
    const auto both = hn::PromoteTo(u, hn::LoadU(LowerBytes(), packed + at));
    const auto pair = hn::Or(hn::ShiftRight<4>(both), hn::ShiftLeft<8>(hn::And(both, hn::Set(u, 15))));
    hn::StoreU(hn::Xor(hn::BitCast(i, pair), eight) - eight, i, bytes + 2 * at);
  }
#endif
  for (; at < pairs; ++at) {
    bytes[2 * at] = static_cast<int8_t>((packed[at] >> 4 ^ 8) - 8);
    bytes[2 * at + 1] = static_cast<int8_t>(((packed[at] & 15) ^ 8) - 8);
  }
}

void quantise_8(const float* values, size_t count, float scale, uint8_t* packed) {
  for_each_vector(values, reinterpret_cast<int8_t*>(packed), count, Quantise<8>{scale});
}

void quantise_4(const float* values, size_t count, float scale, uint8_t* packed) {
  for (size_t at = 0; at < count; at += kPart) {
    const size_t n = std::min(kPart, count - at);
    int8_t bytes[kPart];
    bytes[(n - 1) | 1] = 0;  // fills the unused half of the last byte
    for_each_vector(values + at, bytes, n, Quantise<4>{scale});
    pack_halves(bytes, (n + 1) / 2, packed + at / 2);
  }
}

template <bool kAdd>
HWY_INLINE void dequantise(int bits, const uint8_t* packed, size_t count, float scale, float* out) {
  const Dequantise<kAdd> op{scale};
  if (bits == 8) return for_each_vector(reinterpret_cast<const int8_t*>(packed), out, count, op);
  for (size_t at = 0; at < count; at += kPart) {
    const size_t n = std::min(kPart, count - at);
    int8_t bytes[kPart];
    unpack_halves(packed + at / 2, (n + 1) / 2, bytes);
    for_each_vector(bytes, out + at, n, op);
  }
}

void store_dequantised(int bits, const uint8_t* packed, size_t count, float scale, float* out) {
  dequantise<false>(bits, packed, count, scale, out);
}
void add_dequantised(int bits, const uint8_t* packed, size_t count, float scale, float* out) {
  dequantise<true>(bits, packed, count, scale, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(quantise_8);
HWY_EXPORT(quantise_4);
HWY_EXPORT(store_dequantised);
HWY_EXPORT(add_dequantised);

static_assert(std::endian::native == std::endian::little, "pairs of bytes are packed in words of 16 bits");

size_t block_bytes(int bits, size_t count) { return bits == 8 ? count : count / 2 + count % 2; }

// The scale is 2^bits / (2 m). It is computed as 2^(bits - 1) / m, because 2 m could overflow.
void quantise_blocks(int bits, size_t block, std::span<const float> values, std::span<uint8_t> packed,
                     std::span<float> scales) {
  using Limits = std::numeric_limits<float>;
  const FpMode mode;
  const auto quantise = bits == 8 ? HWY_DYNAMIC_DISPATCH(quantise_8) : HWY_DYNAMIC_DISPATCH(quantise_4);
  for (size_t at = 0, b = 0; at < values.size(); at += block, ++b) {
    const size_t count = std::min(block, values.size() - at);
    uint8_t* const bytes = packed.data() + block_bytes(bits, at);
    const float most = max_magnitude(values.subspan(at, count));
    if (!std::isfinite(most)) {
      scales[b] = Limits::quiet_NaN();
      std::memset(bytes, 0, block_bytes(bits, count));
      continue;
    }
    const float scale =
        most == 0 ? 1.0f : std::min(static_cast<float>(1 << (bits - 1)) / most, Limits::max());
    quantise(values.data() + at, count, scale, bytes);
    scales[b] = 1.0f / scale;
  }
}

void dequantise_blocks(int bits, size_t block, std::span<const uint8_t> packed, std::span<const float> scales,
                       std::span<float> out, bool add) {
  const FpMode mode;
  const auto dequantise =
      add ? HWY_DYNAMIC_DISPATCH(add_dequantised) : HWY_DYNAMIC_DISPATCH(store_dequantised);
  for (size_t at = 0, b = 0; at < out.size(); at += block, ++b) {
    const size_t count = std::min(block, out.size() - at);
    dequantise(bits, packed.data() + block_bytes(bits, at), count, scales[b], out.data() + at);
  }
}

}  // namespace dsc
#endif
