// Element types and reductions once more, by plain arithmetic in double and one element at a time, to compare
// with.
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

// A 16-bit float of kBits significant bits.
template <int kBits, int kMinExponent>
struct Half {
  static constexpr int kStored = kBits - 1;
  static constexpr uint16_t kInfinity = static_cast<uint16_t>(0x7fff >> kStored << kStored);
  static constexpr uint16_t kNan = static_cast<uint16_t>(kInfinity | (1 << (kStored - 1)));
  uint16_t bits;

  static Half from(float value) {
    if (std::isnan(value)) return {kNan};
    const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
    const double magnitude = std::fabs(static_cast<double>(value));
    if (magnitude == 0) return {sign};
    if (std::isinf(magnitude)) return {static_cast<uint16_t>(sign | kInfinity)};
    const int exponent = std::max(std::ilogb(magnitude), kMinExponent);
    const double steps = std::nearbyint(std::ldexp(magnitude, kStored - exponent));  // ties to even
    // A carry out of the significand, and out of the denormals, lands in the exponent as it should.
    const auto number = static_cast<int>(steps) + ((exponent - kMinExponent) << kStored);
    return {static_cast<uint16_t>(sign | std::min<int>(number, kInfinity))};
  }

  float value() const {
    const int magnitude = bits & 0x7fff;
    const int exponent = magnitude >> kStored;
    const int significand = magnitude & ((1 << kStored) - 1);
    double result;
    if (magnitude > kInfinity) return std::numeric_limits<float>::quiet_NaN();
    if (magnitude == kInfinity)
      result = std::numeric_limits<double>::infinity();
    else if (exponent == 0)
      result = std::ldexp(significand, kMinExponent - kStored);
    else
      result = std::ldexp(significand + (1 << kStored), exponent - 1 + kMinExponent - kStored);
    return static_cast<float>(bits & 0x8000 ? -result : result);
  }
};

using F16 = Half<11, -14>;
using Bf16 = Half<8, -126>;

template <typename T>
T canonical(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

inline float to_accumulator(F16 x) { return x.value(); }
inline float to_accumulator(Bf16 x) { return x.value(); }
template <typename T>
T to_accumulator(T x) {
  return x;
}

template <typename T, typename A>
T from_accumulator(A x) {
  if constexpr (std::is_class_v<T>)
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
      default:
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
      nullptr,          reduce<int8_t>, reduce<uint8_t>, reduce<int32_t>, reduce<uint32_t>, reduce<int64_t>,
      reduce<uint64_t>, reduce<F16>,    reduce<float>,   reduce<double>,  reduce<Bf16>};
  return kFunctions[dtype];
}

// One element as a number, exactly.
template <typename T>
double value(const void* array, size_t i) {
  return static_cast<double>(to_accumulator(read<T>(array, i)));
}

template <typename T>
void set(void* array, size_t i, float number) {
  const T element = from_accumulator<T>(number);
  std::memcpy(static_cast<char*>(array) + i * sizeof(T), &element, sizeof(T));
}

using Value = double (*)(const void*, size_t);
using Set = void (*)(void*, size_t, float);

inline Value value_for(int32_t dtype) {
  return dtype == DSC_DTYPE_F32   ? value<float>
         : dtype == DSC_DTYPE_F64 ? value<double>
         : dtype == DSC_DTYPE_F16 ? value<F16>
                                  : value<Bf16>;
}

inline Set set_for(int32_t dtype) {
  return dtype == DSC_DTYPE_F32   ? set<float>
         : dtype == DSC_DTYPE_F64 ? set<double>
         : dtype == DSC_DTYPE_F16 ? set<F16>
                                  : set<Bf16>;
}

}  // namespace reference
