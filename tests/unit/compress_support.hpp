// Random arrays for the tests of compression, and a check that a result has the same bits with every
// instruction set and floating-point mode.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "dtype_support.hpp"
#include "repetitions.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace support {

inline int cases() { return test_repetitions(1000, 100); }

using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

// The kinds of input arrays of the tests.
enum class Kind { kNormal, kTiny, kHuge, kFew, kZeros, kSpecial };
inline constexpr Kind kFinite[] = {Kind::kNormal, Kind::kTiny, Kind::kHuge, Kind::kFew, Kind::kZeros};

inline float random_float(Kind kind, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  switch (kind) {
    case Kind::kNormal:
      return normal(random);
    case Kind::kTiny:  // most values are denormals
      return normal(random) * 1e-39f;
    case Kind::kHuge:
      return (random() % 2 != 0 ? 1.0f : -1.0f) * std::numeric_limits<float>::max() /
             static_cast<float>(1 + random() % 4);
    case Kind::kFew:
      return static_cast<float>(random() % 7) - 3;
    case Kind::kZeros:
      return random() % 2 != 0 ? 0.0f : -0.0f;
    default:
      return element<float>(random);  // random bits, so some values are NaN, infinite or denormal
  }
}

inline Floats random_floats(size_t count, Kind kind, std::mt19937_64& random) {
  Floats values(count);
  for (float& value : values) value = random_float(kind, random);
  return values;
}

// Appends the bits of the floats. All NaNs get the same bits, because processors differ in their signs.
inline void append(Bytes& bytes, std::span<const float> values) {
  for (const float value : values) {
    const float shown = std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;
    const auto* first = reinterpret_cast<const uint8_t*>(&shown);
    bytes.insert(bytes.end(), first, first + sizeof shown);
  }
}

inline Bytes bits(std::span<const float> values) {
  Bytes bytes;
  append(bytes, values);
  return bytes;
}

inline bool same(std::span<const float> a, std::span<const float> b) { return bits(a) == bits(b); }

// Runs `compute` with every instruction set, and once with denormals flushed and rounding to zero. `compute`
// must only call one function of the library. Returns the result, which must always be the same.
template <class Compute>
Bytes same_everywhere(Compute compute) {
  const Bytes expected = compute();
  on_every_target([&](const char* target) {
    if (compute() != expected) fail_msg("%s gives other bits", target);
  });
#if defined(__x86_64__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(0xffc0);
  Bytes other = compute();
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  assert_true(other == expected);
  assert_int_equal(after & ~0x3fu, 0xffc0);  // the mode must be unchanged; the low bits are exception flags
#endif
  return expected;
}

}  // namespace support
