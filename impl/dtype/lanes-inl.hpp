// Conversion between arrays of an element type and vectors of its accumulation type. This file is compiled
// once per instruction set, so the include guard is Highway's toggle.
//
// The unit of work is a Quad: four vectors of the accumulation type. A lanes type L has
//   Element, Tag (of the accumulation type), kFloat, kMaxElements, elements(), load(), pack(),
// store<kStream>().
// L may order elements inside its Quad in any way, because all arithmetic is element-wise. kNonFinite is a
// mask of bits that are all set in NaN and infinity, and in no other value. pack() requires canonical NaNs.
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

// Marks conversions that take a few instructions on vectors. Without vectors they are long, and inlining
// would copy them into every loop.
#undef DSC_CONVERSION
#if HWY_TARGET == HWY_SCALAR
#define DSC_CONVERSION HWY_NOINLINE
#else
#define DSC_CONVERSION HWY_INLINE
#endif

// Four vectors of the accumulation type.
template <class V>
struct Quad {
  V a, b, c, d;
};

// Loads a vector from any address, including an address that is not a multiple of the element's size.
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

// With kStream, the store bypasses the caches, and the address must be a multiple of the vector's size.
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

template <bool kStream, class D, typename T = hn::TFromD<D>>
HWY_INLINE void store_quad(D tag, const Quad<hn::Vec<D>>& q, T* p) {
  const size_t n = hn::Lanes(tag);
  store_any<kStream>(tag, q.a, p);
  store_any<kStream>(tag, q.b, p + n);
  store_any<kStream>(tag, q.c, p + 2 * n);
  store_any<kStream>(tag, q.d, p + 3 * n);
}

template <typename T>
inline constexpr bool kMasks = HWY_ARCH_X86&& HWY_TARGET <= HWY_AVX2 && sizeof(T) >= 4;

// Types that are their own accumulation type.
template <typename T>
struct Plain {
  using Element = T;
  using Tag = hn::ScalableTag<T>;
  using V = hn::Vec<Tag>;
  static constexpr bool kFloat = hwy::IsFloat<T>();
  static constexpr hwy::MakeUnsigned<T> kNonFinite = kFloat ? hwy::ExponentMask<T>() : 0;
  static constexpr size_t kMaxElements = 4 * hn::MaxLanes(Tag());
  static HWY_INLINE size_t elements() { return 4 * hn::Lanes(Tag()); }

  static HWY_INLINE Quad<V> load(const T* p) {
    const Tag t;
    const size_t n = hn::Lanes(t);
    return {load_any(t, p), load_any(t, p + n), load_any(t, p + 2 * n), load_any(t, p + 3 * n)};
  }

  static HWY_INLINE Quad<V> pack(const Quad<V>& q) { return q; }

  template <bool kStream>
  static HWY_INLINE void store(const Quad<V>& q, T* p) {
    store_quad<kStream>(Tag(), q, p);
  }

  // These load and store the first n elements without accessing memory after them. They exist only on targets
  // with masked access.
  static HWY_INLINE Quad<V> load_first(const T* p, size_t n) requires(kMasks<T>) {
    return {mask_load(p, 0, n), mask_load(p, 1, n), mask_load(p, 2, n), mask_load(p, 3, n)};
  }

  static HWY_INLINE void store_first(const Quad<V>& q, T* p, size_t n) requires(kMasks<T>) {
    mask_store(q.a, p, 0, n);
    mask_store(q.b, p, 1, n);
    mask_store(q.c, p, 2, n);
    mask_store(q.d, p, 3, n);
  }

 private:
  static HWY_INLINE auto mask(size_t vector, size_t n) {
    const size_t before = vector * hn::Lanes(Tag());
    return hn::FirstN(Tag(), n > before ? n - before : 0);
  }
  static HWY_INLINE V mask_load(const T* p, size_t vector, size_t n) {
    return hn::MaskedLoad(mask(vector, n), Tag(), p + vector * hn::Lanes(Tag()));
  }
  static HWY_INLINE void mask_store(V v, T* p, size_t vector, size_t n) {
    hn::BlendedStore(v, mask(vector, n), Tag(), p + vector * hn::Lanes(Tag()));
  }
};

// Replaces NaNs by the positive quiet NaN without payload.
template <class V>
HWY_INLINE V canonical(V v) {
  using T = hn::TFromV<V>;
  const hn::DFromV<V> t;
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(t, static_cast<T>(__builtin_nanf(""))), v);
}

template <class V>
HWY_INLINE Quad<V> canonical(const Quad<V>& q) {
  return {canonical(q.a), canonical(q.b), canonical(q.c), canonical(q.d)};
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
