// f16 and bf16 as vectors of f32.
#if defined(DSC_DTYPE_HALF_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DSC_DTYPE_HALF_INL_HPP
#undef DSC_DTYPE_HALF_INL_HPP
#else
#define DSC_DTYPE_HALF_INL_HPP
#endif

#include "dtype/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// The common part of both 16-bit floats, whose accumulation type is f32.
struct Half {
  using Element = uint16_t;
  using Tag = hn::ScalableTag<float>;
  using V = hn::Vec<Tag>;
  using Bits = hn::RebindToUnsigned<Tag>;    // bits of the f32 vector
  using Packed = hn::Rebind<uint16_t, Tag>;  // the same number of 16-bit elements
  static constexpr bool kFloat = true;
  static constexpr size_t kMaxElements = 4 * hn::MaxLanes(Tag());
  static HWY_INLINE size_t elements() { return 4 * hn::Lanes(Tag()); }
};

struct F16 : Half {
  static constexpr Element kNonFinite = 0x7c00;

#if HWY_TARGET == HWY_SCALAR
  // Highway's conversions without F16C handle neither NaN nor infinity and do not round to nearest even.
  static HWY_INLINE V widen(hn::Vec<Packed> v) {
    const Tag t;
    const Bits u;
    const auto half = hn::PromoteTo(u, v);
    const auto magnitude = hn::And(half, hn::Set(u, 0x7fff));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(half, magnitude));
    // The multiplication moves the exponent from the bias of f16 to that of f32; it is exact for denormals
    // too.
    const auto scaled = hn::BitCast(t, hn::ShiftLeft<13>(magnitude)) * hn::Set(t, 0x1p112f);
    const auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(u, 0x7f800000));
    const auto is_special = magnitude > hn::Set(u, 0x7bff);
    return hn::BitCast(t, hn::Or(sign, hn::IfThenElse(is_special, special, hn::BitCast(u, scaled))));
  }

  static HWY_INLINE hn::Vec<Packed> narrow(V v) {
    const Tag t;
    const Bits u;
    const auto bits = hn::BitCast(u, v);
    const auto magnitude = hn::And(bits, hn::Set(u, 0x7fffffff));
    const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(u, 1));
    const auto rebased = magnitude - hn::Set(u, 112u << 23);
    const auto normal = hn::ShiftRight<13>(rebased + hn::Set(u, 0xfff) + odd);
    // The addition rounds at the last bit of an f16 denormal.
    const auto half = hn::Set(t, 0.5f);
    const auto denormal = hn::BitCast(u, hn::BitCast(t, magnitude) + half) - hn::BitCast(u, half);
    auto result = hn::IfThenElse(magnitude < hn::Set(u, 113u << 23), denormal, normal);
    result = hn::IfThenElse(magnitude > hn::Set(u, 0x477fffff), hn::Set(u, 0x7c00), result);
    result = hn::IfThenElse(magnitude > hn::Set(u, 0x7f800000), hn::Set(u, 0x7e00), result);
    return hn::Set(Packed(), static_cast<uint16_t>(hn::GetLane(hn::Or(sign, result))));
  }
#else
  using Half16 = hn::Rebind<hwy::float16_t, Tag>;

  static HWY_INLINE V widen(hn::Vec<Packed> v) { return hn::PromoteTo(Tag(), hn::BitCast(Half16(), v)); }
  static HWY_INLINE hn::Vec<Packed> narrow(V v) { return hn::BitCast(Packed(), hn::DemoteTo(Half16(), v)); }
#endif

  static DSC_CONVERSION Quad<V> load(const uint16_t* p) {
    const Packed packed;
    const size_t n = hn::Lanes(packed);
    return {widen(load_any(packed, p)), widen(load_any(packed, p + n)), widen(load_any(packed, p + 2 * n)),
            widen(load_any(packed, p + 3 * n))};
  }

  // Half vectors are stored one by one, because combining two of them would use the execution ports that
  // convert.
  static DSC_CONVERSION Quad<hn::Vec<Packed>> pack(const Quad<V>& q) {
    return {narrow(q.a), narrow(q.b), narrow(q.c), narrow(q.d)};
  }

  template <bool kStream>
  static HWY_INLINE void store(const Quad<hn::Vec<Packed>>& q, uint16_t* p) {
    store_quad<kStream>(Packed(), q, p);
  }
};

// A 32-bit lane i holds element 2i in its low half and element 2i + 1 in its high half, where the element
// already is an f32. So a and c hold the even elements, b and d the odd elements, and no shuffle is needed.
// Rounding is done here, because Highway 1.0.3 truncates when it converts to bf16.
struct Bf16 : Half {
  static constexpr Element kNonFinite = 0x7f80;
  using Full = hn::ScalableTag<uint16_t>;

#if HWY_TARGET == HWY_SCALAR
  static HWY_INLINE V widen(hn::Vec<Packed> v) {
    return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(Bits(), v)));
  }

  static HWY_INLINE hn::Vec<Packed> narrow(V v) {
    const uint32_t bits = hn::GetLane(hn::BitCast(Bits(), v));
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return hn::Set(Packed(), static_cast<uint16_t>(rounded));
  }

  static HWY_INLINE Quad<V> load(const uint16_t* p) {
    const Packed packed;
    return {widen(load_any(packed, p)), widen(load_any(packed, p + 1)), widen(load_any(packed, p + 2)),
            widen(load_any(packed, p + 3))};
  }

  static HWY_INLINE Quad<hn::Vec<Packed>> pack(const Quad<V>& q) {
    return {narrow(q.a), narrow(q.b), narrow(q.c), narrow(q.d)};
  }

  template <bool kStream>
  static HWY_INLINE void store(const Quad<hn::Vec<Packed>>& q, uint16_t* p) {
    store_quad<kStream>(Packed(), q, p);
  }
#else
  struct Pair {
    hn::Vec<Full> ab, cd;
  };

  static HWY_INLINE Quad<V> load(const uint16_t* p) {
    const Tag t;
    const Bits u;
    const Full full;
    const auto high = hn::Set(u, 0xffff0000);
    const auto ab = hn::BitCast(u, hn::LoadU(full, p));
    const auto cd = hn::BitCast(u, hn::LoadU(full, p + hn::Lanes(full)));
    return {hn::BitCast(t, hn::ShiftLeft<16>(ab)), hn::BitCast(t, hn::And(ab, high)),
            hn::BitCast(t, hn::ShiftLeft<16>(cd)), hn::BitCast(t, hn::And(cd, high))};
  }

  // Rounds to nearest even. The kept half is incremented if the dropped half is more than one half of a unit,
  // or if it is exactly one half and the kept half is odd. NaNs are canonical here, so their dropped half is
  // zero.
  static HWY_INLINE hn::Vec<Full> round(V even, V odd) {
    const Bits u;
    const Full full;
    const auto e = hn::BitCast(u, even), o = hn::BitCast(u, odd);
    const auto kept = hn::BitCast(full, hn::OrAnd(hn::ShiftRight<16>(e), o, hn::Set(u, 0xffff0000)));
    const auto dropped = hn::BitCast(full, hn::OrAnd(hn::ShiftLeft<16>(o), e, hn::Set(u, 0xffff)));
#if HWY_TARGET == HWY_AVX3
    const auto sticky = hn::OrAnd(dropped, kept, hn::Set(full, 1));
    return hn::IfThenElse(sticky > hn::Set(full, 0x8000), kept + hn::Set(full, 1), kept);
#else
    // This code needs no unsigned comparison. The carry is the top bit of a rounded average. AverageRound()
    // adds 1 itself, so `bias` is smaller by 1.
    const auto bias = hn::OrAnd(hn::Set(full, 0x7ffe), kept, hn::Set(full, 1));
    return kept + hn::ShiftRight<15>(hn::AverageRound(dropped, bias));
#endif
  }

  static HWY_INLINE Pair pack(const Quad<V>& q) { return {round(q.a, q.b), round(q.c, q.d)}; }

  template <bool kStream>
  static HWY_INLINE void store(const Pair& pair, uint16_t* p) {
    const Full full;
    store_any<kStream>(full, pair.ab, p);
    store_any<kStream>(full, pair.cd, p + hn::Lanes(full));
  }
#endif
};

// f32 elements in a Quad, in the order that Bf16 uses.
struct F32Pairs {
  using Element = float;
  using Tag = hn::ScalableTag<float>;
  using V = hn::Vec<Tag>;

  static HWY_INLINE Quad<V> load(const float* p) {
    const Tag t;
    Quad<V> q;
    hn::LoadInterleaved2(t, p, q.a, q.b);
    hn::LoadInterleaved2(t, p + 2 * hn::Lanes(t), q.c, q.d);
    return q;
  }

  static HWY_INLINE Quad<V> pack(const Quad<V>& q) { return q; }

  template <bool kStream>
  static HWY_INLINE void store(const Quad<V>& q, float* p) {
    const Tag t;
    hn::StoreInterleaved2(q.a, q.b, t, p);
    hn::StoreInterleaved2(q.c, q.d, t, p + 2 * hn::Lanes(t));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
