// The reduction loop and the operations, compiled once per instruction set.
#if defined(DSC_DTYPE_REDUCE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef DSC_DTYPE_REDUCE_INL_HPP
#undef DSC_DTYPE_REDUCE_INL_HPP
#else
#define DSC_DTYPE_REDUCE_INL_HPP
#endif

#include <algorithm>

#include "dtype/kernels.hpp"
#include "dtype/lanes-inl.hpp"
#include "dtype/scan-inl.hpp"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// kKeepsNonFinite is true if the result is NaN or infinite whenever an operand is.
struct Add {
  static constexpr bool kKeepsNonFinite = true;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return a + b;
  }
};

struct Mul {
  static constexpr bool kKeepsNonFinite = true;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return a * b;
  }
};

struct Div {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return a / b;
  }
};

// IEEE 754-2019 maximum. +0 and -0 compare equal, so their sign bits are combined with "and".
struct Max {
  static constexpr bool kKeepsNonFinite = false;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
      const V larger = hn::IfThenElse(a > b, a, b);  // b if one operand is NaN
      const V ordered = hn::IfThenElse(a == b, hn::And(a, b), larger);
      return hn::IfThenElse(hn::IsNaN(a), a, ordered);
    } else {
      return hn::Max(a, b);
    }
  }
};

struct Min {
  static constexpr bool kKeepsNonFinite = false;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
      const V smaller = hn::IfThenElse(a < b, a, b);  // b if one operand is NaN
      const V ordered = hn::IfThenElse(a == b, hn::Or(a, b), smaller);
      return hn::IfThenElse(hn::IsNaN(a), a, ordered);
    } else {
      return hn::Min(a, b);
    }
  }
};

template <class Op, class V>
HWY_INLINE Quad<V> each(Op op, const Quad<V>& x, const Quad<V>& y) {
  return {op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d)};
}

template <class Op, class V>
HWY_INLINE Quad<V> each(Op op, const Quad<V>& x, V y) {
  return {op(x.a, y), op(x.b, y), op(x.c, y), op(x.d, y)};
}

template <class L>
concept TakesFirst = requires(const typename L::Element* p) {
  L::load_first(p, size_t{});
};

// Loads a Quad that starts at element `at`. Without kWhole, only `n` elements exist, and the others are zero.
template <class L, bool kWhole>
HWY_INLINE auto fetch(const void* array, size_t at, size_t n) {
  using T = typename L::Element;
  const T* p = static_cast<const T*>(array) + at;
  if constexpr (kWhole) return L::load(p);
  if constexpr (TakesFirst<L>) return L::load_first(p, n);
  HWY_ALIGN T lanes[L::kMaxElements] = {};
  std::memcpy(lanes, p, n * sizeof(T));
  return L::load(lanes);
}

// The factors and the divisor of one call, as vectors.
template <class L>
struct Scales {
  using T = hn::TFromD<typename L::Tag>;
  typename L::V before, after, divisor;

  explicit HWY_INLINE Scales(const KernelArgs& args)
      : before(hn::Set(typename L::Tag(), static_cast<T>(args.prescale))),
        after(hn::Set(typename L::Tag(), static_cast<T>(args.postscale))),
        divisor(hn::Set(typename L::Tag(), static_cast<T>(args.divisor))) {}
};

template <class L>
HWY_NOINLINE void report_inputs(const KernelArgs& args, size_t at, size_t n) {
  for (int s = 0; s < args.src_count; ++s) scan(args.srcs[s], at, n, L::kNonFinite, s, *args.report);
}

// One call for one element type and operation. With kScaled, factors or a divisor are applied.
//
// NaN and infinity are rare. They are detected by a probe: a sum that becomes non-finite if any of its values
// is. Only then are NaNs made canonical and inputs reported. With kProbeInputs, inputs are also added to the
// probe.
template <class L, class Op, bool kScaled, bool kProbeInputs>
class Loop {
 public:
  explicit HWY_INLINE Loop(const KernelArgs& args) : args_(args), scales_(args) {}

  HWY_INLINE void whole(size_t at) const {
    const auto result = L::pack(combine<true>(at, L::elements()));
    for (int d = 0; d < args_.dst_count; ++d) {
      T* p = static_cast<T*>(args_.dsts[d]) + at;
      const bool aligned = reinterpret_cast<uintptr_t>(p) % sizeof(hn::Vec<hn::ScalableTag<T>>) == 0;
      if (d < args_.streamed && aligned) {
        L::template store<true>(result, p);
      } else {
        L::template store<false>(result, p);
      }
    }
  }

  HWY_INLINE void part(size_t at, size_t n) const {
    const auto result = L::pack(combine<false>(at, n));
    if constexpr (TakesFirst<L>) {
      for (int d = 0; d < args_.dst_count; ++d)
        L::store_first(result, static_cast<T*>(args_.dsts[d]) + at, n);
      return;
    }
    HWY_ALIGN T lanes[L::kMaxElements];
    L::template store<false>(result, lanes);
    for (int d = 0; d < args_.dst_count; ++d)
      std::memcpy(static_cast<T*>(args_.dsts[d]) + at, lanes, n * sizeof(T));
  }

 private:
  using T = typename L::Element;
  using V = typename L::V;

  static HWY_INLINE V total(const Quad<V>& q) { return (q.a + q.b) + (q.c + q.d); }

  // A prescale of 1.0 is applied too, because it changes no bit.
  template <bool kWhole>
  HWY_INLINE Quad<V> source(int s, size_t at, size_t n) const {
    const auto values = fetch<L, kWhole>(args_.srcs[s], at, n);
    if constexpr (kScaled) return each(Mul(), values, scales_.before);
    return values;
  }

  // Returns the result for elements [at, at + n).
  template <bool kWhole>
  HWY_INLINE Quad<V> combine(size_t at, size_t n) const {
    auto result = source<kWhole>(0, at, n);
    [[maybe_unused]] V inputs = result.a;
    if constexpr (kProbeInputs) inputs = total(result);
    for (int s = 1; s < args_.src_count; ++s) {
      const auto next = source<kWhole>(s, at, n);
      if constexpr (kProbeInputs) inputs = inputs + total(next);
      result = each(Op(), result, next);
    }
    if constexpr (kScaled) {
      if (args_.postscale != 1.0) result = each(Mul(), result, scales_.after);
      if (args_.divisor != 1.0) result = each(Div(), result, scales_.divisor);
    }
    if constexpr (L::kFloat) {
      const V probe = kProbeInputs ? inputs + total(result) : total(result);
      if (HWY_UNLIKELY(!hn::AllTrue(typename L::Tag(), hn::IsFinite(probe)))) {
        if (args_.report != nullptr) report_inputs<L>(args_, at, n);
        result = canonical(result);
      }
    }
    return result;
  }

  const KernelArgs& args_;
  const Scales<L> scales_;
};

// Returns the number of elements before the first cache line boundary in the first destination; 0 if no
// element starts at a boundary.
template <typename T>
HWY_INLINE size_t elements_to_line(const KernelArgs& args) {
  constexpr size_t kLineBytes = 64;
  const size_t bytes = -reinterpret_cast<uintptr_t>(args.dsts[0]) % kLineBytes;
  return bytes % sizeof(T) == 0 ? std::min(bytes / sizeof(T), args.count) : 0;
}

// The arguments are passed by value, so that the caller's copy can stay in registers.
template <class L, class Op, bool kScaled, bool kProbeInputs>
HWY_NOINLINE void reduce_part(KernelArgs args, size_t at, size_t n) {
  Loop<L, Op, kScaled, kProbeInputs>(args).part(at, n);
}

template <class L, class Op, bool kScaled, bool kProbeInputs = false>
HWY_INLINE void reduce_all(const KernelArgs args) {
  const size_t step = L::elements();
  const size_t head = args.streamed > 0 ? elements_to_line<typename L::Element>(args) : 0;
  const Loop<L, Op, kScaled, kProbeInputs> loop(args);
  size_t at = 0;
  for (; at < head; at += std::min(step, head - at))
    reduce_part<L, Op, kScaled, kProbeInputs>(args, at, std::min(step, head - at));
  for (; args.count - at >= step; at += step) loop.whole(at);
  if (at < args.count) reduce_part<L, Op, kScaled, kProbeInputs>(args, at, args.count - at);
  if (args.streamed > 0) hwy::FlushStream();
}

// There are only two loops, because each takes long to compile: one for plain operations, and one for
// factors, a divisor and reports. The result of max or min may be finite although an input is infinite, so
// for these the inputs must be probed too.
template <class L, class Op>
HWY_INLINE void reduce_float_by(const KernelArgs& args, bool scaled) {
  constexpr bool kProbeInputs = !Op::kKeepsNonFinite;
  if (scaled || (kProbeInputs && args.report != nullptr)) return reduce_all<L, Op, true, kProbeInputs>(args);
  reduce_all<L, Op, false>(args);
}

// The operations of the floating-point types.
template <class L>
HWY_INLINE void reduce_float(const KernelArgs& args) {
  const bool scaled = args.prescale != 1.0 || args.postscale != 1.0 || args.divisor != 1.0;
  switch (args.op) {
    case DSC_OP_SUM:
      return reduce_float_by<L, Add>(args, scaled);
    case DSC_OP_PROD:
      return reduce_float_by<L, Mul>(args, scaled);
    case DSC_OP_MAX:
      return reduce_float_by<L, Max>(args, scaled);
    case DSC_OP_MIN:
      return reduce_float_by<L, Min>(args, scaled);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
