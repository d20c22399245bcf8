// A second implementation of element types and reductions, in plain double arithmetic, one element at a time.
// The tests compare the kernels with it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "dsc/types.h"

namespace reference {

// A float with kBits significant bits, stored as the integer type Stored. The code kTooLarge follows the code
// of the largest number. It is infinity, or NaN in a type without infinity.
template <typename Stored, int kBits, int kMinExponent, Stored kTooLarge, Stored kNanBits>
struct Small {
  static constexpr int kFraction = kBits - 1;
  static constexpr int kSign = 1 << (8 * sizeof(Stored) - 1);
  static constexpr Stored kNan = kNanBits;
  Stored bits;

  static Small from(float value) {
    if (std::isnan(value)) return {kNan};
    const int sign = std::signbit(value) ? kSign : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    int number = kTooLarge;
    if (magnitude == 0) number = 0;
    if (magnitude > 0 && !std::isinf(magnitude)) {
      const int exponent = std::max(std::ilogb(magnitude), kMinExponent);
      // rounds ties to even
      const double steps = std::nearbyint(std::ldexp(magnitude, kFraction - exponent));
      // A carry out of the significand or out of the denormals correctly increases the exponent.
      number = std::min<int>(static_cast<int>(steps) + ((exponent - kMinExponent) << kFraction), kTooLarge);
    }
    return {static_cast<Stored>(number == kNan ? number : sign | number)};
  }

  float value() const {
    const int magnitude = bits & (kSign - 1);
    const int exponent = magnitude >> kFraction;
    const int significand = magnitude & ((1 << kFraction) - 1);
    double result;
    if (magnitude > kTooLarge || magnitude == kNan) return std::numeric_limits<float>::quiet_NaN();
    if (magnitude == kTooLarge)
      result = std::numeric_limits<double>::infinity();
    else if (exponent == 0)
      result = std::ldexp(significand, kMinExponent - kFraction);
    else
      result = std::ldexp(significand + (1 << kFraction), exponent - 1 + kMinExponent - kFraction);
    return static_cast<float>(bits & kSign ? -result : result);
  }
};

using F16 = Small<uint16_t, 11, -14, 0x7c00, 0x7e00>;
using Bf16 = Small<uint16_t, 8, -126, 0x7f80, 0x7fc0>;
using E4m3 = Small<uint8_t, 4, -6, 0x7f, 0x7f>;
using E5m2 = Small<uint8_t, 3, -14, 0x7c, 0x7e>;

struct Bool {
  uint8_t byte;
};

template <typename T>
T canonical(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

inline bool to_accumulator(Bool x) { return x.byte != 0; }
template <typename T>
auto to_accumulator(T x) {
  if constexpr (std::is_class_v<T>)
    return x.value();
  else
    return x;
}

template <typename T, typename A>
T from_accumulator(A x) {
  if constexpr (std::is_same_v<T, Bool>)
    return {static_cast<uint8_t>(x)};
  else if constexpr (std::is_class_v<T>)
    return T::from(x);
  else if constexpr (std::is_floating_point_v<T>)
    return canonical(x);
  else
    return x;
}

template <typename A>
A maximum(A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a > b ? a : b;
}

template <typename A>
A minimum(A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
    if (a == b) return std::signbit(a) ? a : b;
  }
  return a < b ? a : b;
}

template <typename A>
A combine(int32_t op, A a, A b) {
  if (op == DSC_OP_MAX) return maximum(a, b);
  if (op == DSC_OP_MIN) return minimum(a, b);
  if constexpr (std::is_floating_point_v<A>) {
    return op == DSC_OP_PROD ? a * b : a + b;
  } else {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    switch (op) {
      case DSC_OP_PROD:
        return static_cast<A>(x * y);
      case DSC_OP_BAND:
        return static_cast<A>(x & y);
      case DSC_OP_BOR:
        return static_cast<A>(x | y);
      case DSC_OP_BXOR:
        return static_cast<A>(x ^ y);
      default:  // the sum; for truth values their "or"
        return static_cast<A>(x + y);
    }
  }
}

template <typename T>
T read(const void* array, size_t i) {
  T element;
  std::memcpy(&element, static_cast<const char*>(array) + i * sizeof(T), sizeof(T));
  return element;
}

struct Reduction {
  int32_t op;
  double prescale = 1;
  double divisor = 1;
};

template <typename T>
void reduce(const Reduction& r, const void* const* srcs, int src_count, void* dst, size_t count) {
  using A = decltype(to_accumulator(T()));
  for (size_t i = 0; i < count; ++i) {
    A result{};
    for (int s = 0; s < src_count; ++s) {
      A next = to_accumulator(read<T>(srcs[s], i));
      if (r.prescale != 1) next = static_cast<A>(next * static_cast<A>(r.prescale));
      result = s == 0 ? next : combine(r.op, result, next);
    }
    if (r.divisor != 1) result = static_cast<A>(result / static_cast<A>(r.divisor));
    const T element = from_accumulator<T>(result);
    std::memcpy(static_cast<char*>(dst) + i * sizeof(T), &element, sizeof(T));
  }
}

using Function = void (*)(const Reduction&, const void* const*, int, void*, size_t);

inline Function reduce_for(int32_t dtype) {
  static constexpr Function kFunctions[] = {
      nullptr,         reduce<int8_t>,   reduce<uint8_t>, reduce<int32_t>, reduce<uint32_t>,
      reduce<int64_t>, reduce<uint64_t>, reduce<F16>,     reduce<float>,   reduce<double>,
      reduce<Bf16>,    reduce<E4m3>,     reduce<E5m2>,    reduce<Bool>};
  return kFunctions[dtype];
}

// Returns one element as an exact number.
template <typename T>
double value(const void* array, size_t i) {
  return static_cast<double>(to_accumulator(read<T>(array, i)));
}

template <typename T>
void set(void* array, size_t i, float number) {
  const T element = from_accumulator<T>(number);
  std::memcpy(static_cast<char*>(array) + i * sizeof(T), &element, sizeof(T));
}

// The functions above, for the floating-point type `dtype`.
struct Accessors {
  double (*value)(const void*, size_t);
  void (*set)(void*, size_t, float);
};

template <typename T>
inline constexpr Accessors kAccessors = {value<T>, set<T>};

inline const Accessors& accessors(int32_t dtype) {
  return dtype == DSC_DTYPE_F32      ? kAccessors<float>
         : dtype == DSC_DTYPE_F64    ? kAccessors<double>
         : dtype == DSC_DTYPE_F16    ? kAccessors<F16>
         : dtype == DSC_DTYPE_BF16   ? kAccessors<Bf16>
         : dtype == DSC_DTYPE_F8E4M3 ? kAccessors<E4m3>
                                     : kAccessors<E5m2>;
}

}  // namespace reference
