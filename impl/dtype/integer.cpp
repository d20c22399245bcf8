// The reduction kernels of integers and bool. All operations except max and min give the same bits for signed
// and unsigned integers, so they use unsigned integers, which wrap.
#include <type_traits>

#include "dsc/types.h"
#include "dtype/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dtype/integer.cpp"
#include "hwy/foreach_target.h"
// This header must be included after foreach_target.h.
#include "dtype/reduce-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// The bitwise operations, on vectors of any lane type.
struct BitAnd {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::And(a, b);
  }
};

struct BitOr {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Or(a, b);
  }
};

struct BitXor {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Xor(a, b);
  }
};

// Computes the low bits of a product. There is no 8-bit multiplication, so even and odd bytes are multiplied
// in 16-bit lanes.
struct WrapMul {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    const hn::DFromV<V> t;
#if HWY_TARGET == HWY_SCALAR
    using T = hn::TFromV<V>;
    return hn::Set(t, static_cast<T>(uint64_t{hn::GetLane(a)} * hn::GetLane(b)));
#else
    if constexpr (sizeof(hn::TFromV<V>) == 1) {
      const hn::RepartitionToWide<decltype(t)> wide;
      const auto wide_a = hn::BitCast(wide, a);
      const auto wide_b = hn::BitCast(wide, b);
      const auto even = hn::And(wide_a * wide_b, hn::Set(wide, 0xff));
      const auto odd = hn::ShiftLeft<8>(hn::ShiftRight<8>(wide_a) * hn::ShiftRight<8>(wide_b));
      return hn::BitCast(t, hn::Or(even, odd));
    } else {
      return a * b;
    }
#endif
  }
};

// Bool loads any nonzero byte as 1.
struct Bool : Plain<uint8_t> {
  static HWY_INLINE Quad<V> load(const uint8_t* p) {
    return each(Min(), Plain<uint8_t>::load(p), hn::Set(Tag(), 1));
  }
};

// For truth values, sum and max mean "or"; prod and min mean "and".
HWY_INLINE void reduce_truth(const KernelArgs& args) {
  switch (args.op) {
    case DSC_OP_SUM:
    case DSC_OP_MAX:
    case DSC_OP_BOR:
      return reduce_all<Bool, BitOr, false>(args);
    case DSC_OP_PROD:
    case DSC_OP_MIN:
    case DSC_OP_BAND:
      return reduce_all<Bool, BitAnd, false>(args);
    case DSC_OP_BXOR:
      return reduce_all<Bool, BitXor, false>(args);
  }
}

// Not inlined, because several types share it.
template <typename U, class Op>
HWY_NOINLINE void reduce_unsigned(const KernelArgs& args) {
  reduce_all<Plain<U>, Op, false>(args);
}

// A bitwise operation on elements of T is the same operation on their bytes.
template <typename T, class Op>
HWY_INLINE void reduce_bits(KernelArgs args) {
  args.count *= sizeof(T);
  reduce_unsigned<uint8_t, Op>(args);
}

template <typename T>
HWY_INLINE void reduce_integer(const KernelArgs& args) {
  using U = std::make_unsigned_t<T>;
  switch (args.op) {
    case DSC_OP_SUM:
      return reduce_unsigned<U, Add>(args);
    case DSC_OP_PROD:
      return reduce_unsigned<U, WrapMul>(args);
    case DSC_OP_MAX:
      return reduce_all<Plain<T>, Max, false>(args);
    case DSC_OP_MIN:
      return reduce_all<Plain<T>, Min, false>(args);
    case DSC_OP_BAND:
      return reduce_bits<T, BitAnd>(args);
    case DSC_OP_BOR:
      return reduce_bits<T, BitOr>(args);
    case DSC_OP_BXOR:
      return reduce_bits<T, BitXor>(args);
  }
}

void reduce_i8(const KernelArgs& args) { reduce_integer<int8_t>(args); }
void reduce_u8(const KernelArgs& args) { reduce_integer<uint8_t>(args); }
void reduce_i32(const KernelArgs& args) { reduce_integer<int32_t>(args); }
void reduce_u32(const KernelArgs& args) { reduce_integer<uint32_t>(args); }
void reduce_i64(const KernelArgs& args) { reduce_integer<int64_t>(args); }
void reduce_u64(const KernelArgs& args) { reduce_integer<uint64_t>(args); }
void reduce_bool(const KernelArgs& args) { reduce_truth(args); }

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(reduce_i8);
HWY_EXPORT(reduce_u8);
HWY_EXPORT(reduce_i32);
HWY_EXPORT(reduce_u32);
HWY_EXPORT(reduce_i64);
HWY_EXPORT(reduce_u64);
HWY_EXPORT(reduce_bool);

Kernel integer_kernel(int32_t dtype) {
  switch (dtype) {
    case DSC_DTYPE_I8:
      return HWY_DYNAMIC_DISPATCH(reduce_i8);
    case DSC_DTYPE_U8:
      return HWY_DYNAMIC_DISPATCH(reduce_u8);
    case DSC_DTYPE_I32:
      return HWY_DYNAMIC_DISPATCH(reduce_i32);
    case DSC_DTYPE_U32:
      return HWY_DYNAMIC_DISPATCH(reduce_u32);
    case DSC_DTYPE_I64:
      return HWY_DYNAMIC_DISPATCH(reduce_i64);
    case DSC_DTYPE_U64:
      return HWY_DYNAMIC_DISPATCH(reduce_u64);
    case DSC_DTYPE_BOOL:
      return HWY_DYNAMIC_DISPATCH(reduce_bool);
    default:
      return nullptr;
  }
}

}  // namespace dsc
#endif
