// The element types of logits, as vectors of the type in which they are computed. load() and store() handle
// one vector in the order of memory. for_each() and map() are faster: they handle kPerLane vectors, and
// neighboring elements share a lane. This file is compiled once per instruction set, so the include guard is
// Highway's toggle.
#if defined(DSC_DTYPE_LOGITS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DSC_DTYPE_LOGITS_INL_HPP
#undef DSC_DTYPE_LOGITS_INL_HPP
#else
#define DSC_DTYPE_LOGITS_INL_HPP
#endif

#include <cstdint>
#include <limits>

#include "dtype/half-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// for_each() and map() for a type whose vectors follow each other in memory.
template <class L>
struct OneByOne {
  static constexpr size_t kPerLane = 1;
  template <typename T, class F>
  static HWY_INLINE void for_each(const T* at, const F& use) {
    use(L::load(at));
  }
  template <typename T, class F>
  static HWY_INLINE void map(const T* from, T* to, const F& value) {
    L::store(value(L::load(from)), to);
  }
};

template <typename T>
struct PlainLogits : OneByOne<PlainLogits<T>> {
  using Element = T;
  using Number = T;  // the type in which elements are computed
  using Tag = hn::ScalableTag<Number>;
  static constexpr Element kLowest = -std::numeric_limits<T>::infinity();

  static HWY_INLINE hn::Vec<Tag> load(const T* at) { return load_any(Tag(), at); }
  static HWY_INLINE void store(hn::Vec<Tag> v, T* at) { store_any<false>(Tag(), v, at); }
};

struct F16Logits : OneByOne<F16Logits> {
  using Element = uint16_t;
  using Number = float;
  using Tag = hn::ScalableTag<Number>;
  static constexpr Element kLowest = 0xfc00;

  static HWY_INLINE hn::Vec<Tag> load(const uint16_t* at) { return F16::widen(load_any(F16::Packed(), at)); }
  static HWY_INLINE void store(hn::Vec<Tag> v, uint16_t* at) {
    store_any<false>(F16::Packed(), F16::narrow(canonical(v)), at);
  }
};

// A bf16 is an f32 without its lower half. Results are rounded to nearest even. Two neighboring elements are
// the halves of a lane, and each half becomes an f32 in one step.
struct Bf16Logits {
  using Element = uint16_t;
  using Number = float;
  using Tag = hn::ScalableTag<Number>;
  using Bits = hn::RebindToUnsigned<Tag>;
  using Packed = hn::Rebind<uint16_t, Tag>;
  static constexpr Element kLowest = 0xff80;
  static constexpr size_t kPerLane = 2;

  static HWY_INLINE hn::Vec<Tag> load(const uint16_t* at) {
    return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(Bits(), load_any(Packed(), at))));
  }
  static HWY_INLINE void store(hn::Vec<Tag> v, uint16_t* at) {
    const Bits u;
    const auto bits = hn::BitCast(u, canonical(v));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
    const auto upper = hn::ShiftRight<16>(bits + hn::Set(u, 0x7fff) + odd);
    store_any<false>(Packed(), hn::TruncateTo(Packed(), upper), at);
  }

#if HWY_TARGET == HWY_SCALAR
  template <class F>
  static HWY_INLINE void for_each(const uint16_t* at, const F& use) {
    use(load(at)), use(load(at + 1));
  }
  template <class F>
  static HWY_INLINE void map(const uint16_t* from, uint16_t* to, const F& value) {
    store(value(load(from)), to), store(value(load(from + 1)), to + 1);
  }
#else
  template <class F>
  static HWY_INLINE void for_each(const uint16_t* at, const F& use) {
    const auto both = hn::BitCast(Bits(), hn::LoadU(Bf16::Full(), at));
    use(hn::BitCast(Tag(), hn::ShiftLeft<16>(both)));
    use(hn::BitCast(Tag(), hn::And(both, hn::Set(Bits(), 0xffff0000))));
  }
  // A NaN among the values must come from a bf16 or be canonical, so that its lower half is 0.
  template <class F>
  static HWY_INLINE void map(const uint16_t* from, uint16_t* to, const F& value) {
    const auto both = hn::BitCast(Bits(), hn::LoadU(Bf16::Full(), from));
    const auto even = value(hn::BitCast(Tag(), hn::ShiftLeft<16>(both)));
    const auto odd = value(hn::BitCast(Tag(), hn::And(both, hn::Set(Bits(), 0xffff0000))));
    hn::StoreU(Bf16::round(even, odd), Bf16::Full(), to);
  }
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
