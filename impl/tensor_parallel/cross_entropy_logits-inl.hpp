// The types of logits as vectors of the type in which they are computed. Compiled once per instruction set,
// so the include guard is Highway's toggle.
#if defined(DSC_CROSS_ENTROPY_LOGITS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DSC_CROSS_ENTROPY_LOGITS_INL_HPP
#undef DSC_CROSS_ENTROPY_LOGITS_INL_HPP
#else
#define DSC_CROSS_ENTROPY_LOGITS_INL_HPP
#endif

#include <cstdint>
#include <limits>

#include "dtype/half-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

template <typename T>
struct PlainLogits {
  using Element = T;
  using Number = T;  // in which it is computed
  using Tag = hn::ScalableTag<Number>;
  static constexpr Element kLowest = -std::numeric_limits<T>::infinity();

  static HWY_INLINE hn::Vec<Tag> load(const T* at) { return load_any(Tag(), at); }
  static HWY_INLINE void store(hn::Vec<Tag> v, T* at) { store_any<false>(Tag(), v, at); }
};

struct F16Logits {
  using Element = uint16_t;
  using Number = float;
  using Tag = hn::ScalableTag<Number>;
  static constexpr Element kLowest = 0xfc00;

  static HWY_INLINE hn::Vec<Tag> load(const uint16_t* at) { return F16::widen(load_any(F16::Packed(), at)); }
  static HWY_INLINE void store(hn::Vec<Tag> v, uint16_t* at) {
    store_any<false>(F16::Packed(), F16::narrow(canonical(v)), at);
  }
};

// An f32 without its lower half. Results are rounded to nearest even.
struct Bf16Logits {
  using Element = uint16_t;
  using Number = float;
  using Tag = hn::ScalableTag<Number>;
  using Bits = hn::RebindToUnsigned<Tag>;
  using Packed = hn::Rebind<uint16_t, Tag>;
  static constexpr Element kLowest = 0xff80;

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
};

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
