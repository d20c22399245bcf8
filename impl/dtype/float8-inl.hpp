// The two 8-bit floats as vectors of f32. f16 can represent every f8 value, so widening only moves the
// exponent and the fraction.
#if defined(DSC_DTYPE_FLOAT8_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DSC_DTYPE_FLOAT8_INL_HPP
#undef DSC_DTYPE_FLOAT8_INL_HPP
#else
#define DSC_DTYPE_FLOAT8_INL_HPP
#endif

#include "dtype/half-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// The common part of both types. Format provides the number of stored fraction bits, the bias of the
// exponent, the code that replaces magnitudes that are too large, and widen(), which converts to f32.
template <class Format>
struct Float8 {
  using Element = uint8_t;
  using Tag = hn::ScalableTag<float>;
  using V = hn::Vec<Tag>;
  using Bits = hn::RebindToUnsigned<Tag>;
  using Packed = hn::Rebind<uint8_t, Tag>;
  using Full = hn::ScalableTag<uint8_t>;
  static constexpr bool kFloat = true;
  static constexpr Element kNonFinite = Format::kTooLarge;
  static constexpr size_t kMaxElements = 4 * hn::MaxLanes(Tag());
  static HWY_INLINE size_t elements() { return 4 * hn::Lanes(Tag()); }

  static DSC_CONVERSION Quad<V> load(const uint8_t* p) {
    const Packed packed;
    const size_t n = hn::Lanes(packed);
    return {Format::widen(load_any(packed, p)), Format::widen(load_any(packed, p + n)),
            Format::widen(load_any(packed, p + 2 * n)), Format::widen(load_any(packed, p + 3 * n))};
  }

  // Rounds to nearest even.
  static HWY_INLINE hn::Vec<Packed> narrow(V v) {
    constexpr int kDropped = 23 - Format::kStored;
    constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - Format::kBias) << 23;
    constexpr uint32_t kUnit = static_cast<uint32_t>(151 - Format::kBias - Format::kStored) << 23;
    const Tag t;
    const Bits u;
    const auto bits = hn::BitCast(u, v);
    const auto magnitude = hn::And(bits, hn::Set(u, 0x7fffffff));
    auto sign = hn::ShiftRight<24>(hn::Xor(bits, magnitude));
    const auto odd = hn::And(hn::ShiftRight<kDropped>(magnitude), hn::Set(u, 1));
    const auto rebased = magnitude - hn::Set(u, kSmallestNormal - (1u << 23));
    const auto normal = hn::ShiftRight<kDropped>(rebased + hn::Set(u, (1u << (kDropped - 1)) - 1) + odd);
    // The unit in the last place of this f32 equals that of the f8 denormals, so adding this f32 rounds
    // correctly.
    const auto unit = hn::Set(u, kUnit);
    const auto denormal = hn::BitCast(u, hn::BitCast(t, magnitude) + hn::BitCast(t, unit)) - unit;
    auto result = hn::IfThenElse(magnitude < hn::Set(u, kSmallestNormal), denormal, normal);
    result = hn::Min(result, hn::Set(u, uint32_t{Format::kTooLarge}));
    if constexpr (Format::kTooLarge == Format::kNan) {
      sign = hn::IfThenZeroElse(result == hn::Set(u, uint32_t{Format::kNan}), sign);
    } else {
      result = hn::IfThenElse(magnitude > hn::Set(u, 0x7f800000), hn::Set(u, uint32_t{Format::kNan}), result);
    }
    return hn::U8FromU32(hn::Or(sign, result));
  }

#if HWY_TARGET == HWY_SCALAR
  static DSC_CONVERSION Quad<hn::Vec<Packed>> pack(const Quad<V>& q) {
    return {narrow(q.a), narrow(q.b), narrow(q.c), narrow(q.d)};
  }

  template <bool kStream>
  static HWY_INLINE void store(const Quad<hn::Vec<Packed>>& q, uint8_t* p) {
    store_quad<kStream>(Packed(), q, p);
  }
#else
  static HWY_INLINE hn::Vec<Full> pack(const Quad<V>& q) {
    const hn::Half<Full> half;
    const auto low = hn::Combine(half, narrow(q.b), narrow(q.a));
    return hn::Combine(Full(), hn::Combine(half, narrow(q.d), narrow(q.c)), low);
  }

  template <bool kStream>
  static HWY_INLINE void store(hn::Vec<Full> v, uint8_t* p) {
    store_any<kStream>(Full(), v, p);
  }
#endif
};

// E4m3 has no infinity: values that are too large become NaN.
struct E4m3 : Float8<E4m3> {
  static constexpr int kStored = 3;
  static constexpr int kBias = 7;
  static constexpr uint8_t kNan = 0x7f;
  static constexpr uint8_t kTooLarge = kNan;

  static HWY_INLINE V widen(hn::Vec<Packed> v) {
    const Half::Packed h;
    const auto code = hn::PromoteTo(h, v);
    const auto magnitude = hn::And(code, hn::Set(h, 0x7f));
    const auto sign = hn::ShiftLeft<8>(hn::Xor(code, magnitude));
    const auto is_nan = magnitude == hn::Set(h, uint16_t{kNan});
    const auto half = hn::IfThenElse(is_nan, hn::Set(h, 0x7e00), hn::Or(hn::ShiftLeft<7>(magnitude), sign));
    // Multiplying by 2^8 corrects the difference of the exponent biases.
    return F16::widen(half) * hn::Set(Tag(), 256.0f);
  }
};

// E5m2 follows IEEE 754 and has the bits of the upper half of an f16.
struct E5m2 : Float8<E5m2> {
  static constexpr int kStored = 2;
  static constexpr int kBias = 15;
  static constexpr uint8_t kNan = 0x7e;
  static constexpr uint8_t kTooLarge = 0x7c;  // infinity

  static HWY_INLINE V widen(hn::Vec<Packed> v) {
    return F16::widen(hn::ShiftLeft<8>(hn::PromoteTo(Half::Packed(), v)));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
