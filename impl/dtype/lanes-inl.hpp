// How arrays of each element type become vectors to compute with, and back. Compiled once per instruction
// set, so the guard is Highway's toggle.
//
// The unit of work is a Quad: four vectors of the accumulation type. A lanes type L has
//   Element, Tag (of the accumulation type), kFloat, kMaxElements, elements(), load(), store<kStream>()
// and may order elements inside its Quad as it likes, since all arithmetic is element-wise.
#if defined(DSC_DTYPE_LANES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DSC_DTYPE_LANES_INL_HPP
#undef DSC_DTYPE_LANES_INL_HPP
#else
#define DSC_DTYPE_LANES_INL_HPP
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class V>
struct Quad {
  V a, b, c, d;
};

// A vector at any address, also one that is not a multiple of the element's size.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_any(D tag, const T* at) {
#if HWY_TARGET == HWY_SCALAR
  T value;
  std::memcpy(&value, at, sizeof value);
  return hn::Set(tag, value);
#else
  return hn::LoadU(tag, at);
#endif
}

// kStream stores past the caches; the address must then be a multiple of the vector's size.
template <bool kStream, class D, typename T = hn::TFromD<D>>
HWY_INLINE void store_any(D tag, hn::Vec<D> v, T* at) {
#if HWY_TARGET == HWY_SCALAR
  const T value = hn::GetLane(v);
  std::memcpy(at, &value, sizeof value);
  (void)tag;
#else
  if constexpr (kStream) {
    hn::Stream(v, tag, at);
  } else {
    hn::StoreU(v, tag, at);
  }
#endif
}

// Types that are computed with as they are.
template <typename T>
struct Plain {
  using Element = T;
  using Tag = hn::ScalableTag<T>;
  using V = hn::Vec<Tag>;
  static constexpr bool kFloat = hwy::IsFloat<T>();
  static constexpr size_t kMaxElements = 4 * hn::MaxLanes(Tag());
  static HWY_INLINE size_t elements() { return 4 * hn::Lanes(Tag()); }

  static HWY_INLINE Quad<V> load(const T* p) {
    const Tag t;
    const size_t n = hn::Lanes(t);
    return {load_any(t, p), load_any(t, p + n), load_any(t, p + 2 * n), load_any(t, p + 3 * n)};
  }

  template <bool kStream>
  static HWY_INLINE void store(const Quad<V>& q, T* p) {
    const Tag t;
    const size_t n = hn::Lanes(t);
    store_any<kStream>(t, q.a, p);
    store_any<kStream>(t, q.b, p + n);
    store_any<kStream>(t, q.c, p + 2 * n);
    store_any<kStream>(t, q.d, p + 3 * n);
  }
};

// Common to both 16-bit floats: they are computed with in f32.
struct Half {
  using Element = uint16_t;
  using Tag = hn::ScalableTag<float>;
  using V = hn::Vec<Tag>;
  using Bits = hn::RebindToUnsigned<Tag>;    // the f32 vector's bits
  using Packed = hn::Rebind<uint16_t, Tag>;  // as many 16-bit elements
  static constexpr bool kFloat = true;
  static constexpr size_t kMaxElements = 4 * hn::MaxLanes(Tag());
  static HWY_INLINE size_t elements() { return 4 * hn::Lanes(Tag()); }
};

struct F16 : Half {
#if HWY_TARGET == HWY_SCALAR
  // Highway's conversions without F16C leave out NaN and infinity and do not round to nearest even.
  static HWY_INLINE V load_part(const uint16_t* p) {
    const Tag t;
    const Bits u;
    const auto half = hn::PromoteTo(u, load_any(Packed(), p));
    const auto magnitude = hn::And(half, hn::Set(u, 0x7fff));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(half, magnitude));
    // Moves the exponent; right for denormals too.
    const auto scaled = hn::BitCast(t, hn::ShiftLeft<13>(magnitude)) * hn::Set(t, 0x1p112f);
    const auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(u, 0x7f800000));
    const auto is_special = magnitude > hn::Set(u, 0x7bff);
    return hn::BitCast(t, hn::Or(sign, hn::IfThenElse(is_special, special, hn::BitCast(u, scaled))));
  }

  static HWY_INLINE void store_part(V v, uint16_t* p) {
    const Tag t;
    const Bits u;
    const auto bits = hn::BitCast(u, v);
    const auto magnitude = hn::And(bits, hn::Set(u, 0x7fffffff));
    const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(u, 1));
    const auto rebased = magnitude - hn::Set(u, 112u << 23);
    const auto normal = hn::ShiftRight<13>(rebased + hn::Set(u, 0xfff) + odd);
    // The addition rounds at the last place of an f16 denormal.
    const auto half = hn::Set(t, 0.5f);
    const auto denormal = hn::BitCast(u, hn::BitCast(t, magnitude) + half) - hn::BitCast(u, half);
    auto result = hn::IfThenElse(magnitude < hn::Set(u, 113u << 23), denormal, normal);
    result = hn::IfThenElse(magnitude > hn::Set(u, 0x477fffff), hn::Set(u, 0x7c00), result);
    result = hn::IfThenElse(magnitude > hn::Set(u, 0x7f800000), hn::Set(u, 0x7e00), result);
    store_any<false>(Packed(), hn::Set(Packed(), static_cast<uint16_t>(hn::GetLane(hn::Or(sign, result)))),
                     p);
  }
#else
  static HWY_INLINE V load_part(const uint16_t* p) {
    const hn::Rebind<hwy::float16_t, Tag> f16;
    return hn::PromoteTo(Tag(), hn::BitCast(f16, hn::LoadU(Packed(), p)));
  }

  static HWY_INLINE hn::Vec<Packed> pack(V v) {
    const hn::Rebind<hwy::float16_t, Tag> f16;
    return hn::BitCast(Packed(), hn::DemoteTo(f16, v));
  }
#endif

  static HWY_INLINE Quad<V> load(const uint16_t* p) {
    const size_t n = hn::Lanes(Tag());
    return {load_part(p), load_part(p + n), load_part(p + 2 * n), load_part(p + 3 * n)};
  }

  template <bool kStream>
  static HWY_INLINE void store(const Quad<V>& q, uint16_t* p) {
    const size_t n = hn::Lanes(Tag());
#if HWY_TARGET == HWY_SCALAR
    store_part(q.a, p);
    store_part(q.b, p + n);
    store_part(q.c, p + 2 * n);
    store_part(q.d, p + 3 * n);
#else
    const hn::ScalableTag<uint16_t> full;
    store_any<kStream>(full, hn::Combine(full, pack(q.b), pack(q.a)), p);
    store_any<kStream>(full, hn::Combine(full, pack(q.d), pack(q.c)), p + 2 * n);
#endif
  }
};

// Element 2i sits in the low half of 32-bit lane i and element 2i + 1 in the high half, where it already is
// an f32: a and c hold the even elements, b and d the odd ones, and nothing is shuffled.
struct Bf16 : Half {
  using Full = hn::ScalableTag<uint16_t>;

#if HWY_TARGET == HWY_SCALAR
  static HWY_INLINE V load_part(const uint16_t* p) {
    return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(Bits(), load_any(Packed(), p))));
  }

  static HWY_INLINE void store_part(V v, uint16_t* p) {
    const uint32_t bits = hn::GetLane(hn::BitCast(Bits(), v));
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    store_any<false>(Packed(), hn::Set(Packed(), static_cast<uint16_t>(rounded)), p);
  }

  static HWY_INLINE Quad<V> load(const uint16_t* p) {
    return {load_part(p), load_part(p + 1), load_part(p + 2), load_part(p + 3)};
  }

  template <bool kStream>
  static HWY_INLINE void store(const Quad<V>& q, uint16_t* p) {
    store_part(q.a, p);
    store_part(q.b, p + 1);
    store_part(q.c, p + 2);
    store_part(q.d, p + 3);
  }
#else
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

  // Rounds to nearest even: a kept half goes up by the carry of `dropped half + 0x7fff + lowest kept bit`,
  // which is the top bit of their average. NaNs come here as the canonical one, which drops zeros only.
  static HWY_INLINE hn::Vec<Full> pack(V even, V odd) {
    const Bits u;
    const Full full;
    const auto e = hn::BitCast(u, even), o = hn::BitCast(u, odd);
    const auto kept = hn::BitCast(full, hn::OrAnd(hn::ShiftRight<16>(e), o, hn::Set(u, 0xffff0000)));
    const auto dropped = hn::BitCast(full, hn::OrAnd(hn::ShiftLeft<16>(o), e, hn::Set(u, 0xffff)));
    const auto bias = hn::OrAnd(hn::Set(full, 0x7ffe), kept, hn::Set(full, 1));  // the average adds one more
    return kept + hn::ShiftRight<15>(hn::AverageRound(dropped, bias));
  }

  template <bool kStream>
  static HWY_INLINE void store(const Quad<V>& q, uint16_t* p) {
    const Full full;
    store_any<kStream>(full, pack(q.a, q.b), p);
    store_any<kStream>(full, pack(q.c, q.d), p + hn::Lanes(full));
  }
#endif
};

// f32 in the order of Bf16.
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

  template <bool kStream>
  static HWY_INLINE void store(const Quad<V>& q, float* p) {
    const Tag t;
    hn::StoreInterleaved2(q.a, q.b, t, p);
    hn::StoreInterleaved2(q.c, q.d, t, p + 2 * hn::Lanes(t));
  }
};

// NaNs become the positive quiet one without payload; integers pass.
template <class V>
HWY_INLINE V canonical(V v) {
  using T = hn::TFromV<V>;
  if constexpr (hwy::IsFloat<T>()) {
    const hn::DFromV<V> t;
    return hn::IfThenElse(hn::IsNaN(v), hn::Set(t, static_cast<T>(__builtin_nanf(""))), v);
  } else {
    return v;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
