// Helpers of the compression kernels: loops over arrays, and sums whose bits do not depend on the width of
// the vectors. This file is compiled once per instruction set, so the include guard is Highway's toggle.
#if defined(DSC_COMPRESS_VECTORS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DSC_COMPRESS_VECTORS_INL_HPP
#undef DSC_COMPRESS_VECTORS_INL_HPP
#else
#define DSC_COMPRESS_VECTORS_INL_HPP
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using F64 = hn::ScalableTag<double>;
using I32 = hn::RebindToSigned<F32>;

inline constexpr size_t kF32Lanes = hn::MaxLanes(F32());
inline constexpr size_t kF64Lanes = hn::MaxLanes(F64());

// Calls op(in, out) for every vector of f32 elements. The last elements are processed in padded copies, so
// that no memory beyond the arrays is accessed. `op` is a functor and not a lambda, because only a functor is
// certainly inlined at both calls.
template <class In, class Out, class Op>
HWY_INLINE void for_each_vector(const In* in, Out* out, size_t count, const Op& op) {
  size_t at = 0;
  for (; count - at >= kF32Lanes; at += kF32Lanes) op(in + at, out + at);
  if (at == count) return;
  In last_in[kF32Lanes] = {};
  Out last_out[kF32Lanes] = {};
  std::memcpy(last_in, in + at, (count - at) * sizeof(In));
  std::memcpy(last_out, out + at, (count - at) * sizeof(Out));  // if `op` adds, it reads the old values
  op(last_in, last_out);
  std::memcpy(out + at, last_out, (count - at) * sizeof(Out));
}

// Stores `v`, or adds it to the value in memory.
template <bool kAdd>
HWY_INLINE void store_or_add(hn::Vec<F32> v, float* out) {
  hn::StoreU(kAdd ? hn::LoadU(F32(), out) + v : v, F32(), out);
}

// Returns the lanes of a mask as bits; the first lane is the lowest bit.
template <class D>
HWY_INLINE uint64_t bits_of(D tag, hn::Mask<D> mask) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(tag, mask, bytes);
  uint64_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

// Adds the upper half of the numbers to the lower half until one number is left. It has no loops at run time,
// because these would take long compared with the sums of a short row.
inline constexpr size_t kSums = 16;
template <typename T, size_t kCount>
HWY_INLINE T folded(const T (&sums)[kCount]) {
  if constexpr (kCount == 1) {
    return sums[0];
  } else {
    T lower[kCount / 2];
#pragma GCC unroll 8
    for (size_t i = 0; i < kCount / 2; ++i) lower[i] = sums[i] + sums[i + kCount / 2];
    return folded(lower);
  }
}

// Sixteen running sums, independent of the width of the vectors: element i of an array belongs to sum i % 16.
// Every processor therefore adds the same numbers in the same order.
template <typename T>
class Sums {
 public:
  using Tag = hn::ScalableTag<T>;
  static constexpr size_t kWidth = hn::MaxLanes(Tag());
  static constexpr size_t kVectors = kSums / kWidth;

  HWY_INLINE Sums() {
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) sums_[v] = hn::Zero(Tag());
  }
  // Adds a vector to the sums that start at number v * kWidth.
  HWY_INLINE void add(size_t v, hn::Vec<Tag> addend) { sums_[v] = sums_[v] + addend; }
  HWY_INLINE void store(T (&sums)[kSums]) const {
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums_[v], Tag(), sums + v * kWidth);
  }
  HWY_INLINE T total() const {
    T sums[kSums];
    store(sums);
    return folded(sums);
  }

 private:
  hn::Vec<Tag> sums_[kVectors];
};

// Loads f32 numbers and widens them to one vector of f64.
using HalfOfF32 = hn::Rebind<float, F64>;
HWY_INLINE hn::Vec<F64> load_widened(const float* p) {
  return hn::PromoteTo(F64(), hn::LoadU(HalfOfF32(), p));
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
