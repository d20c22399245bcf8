// Normally distributed random numbers that are the same on every machine. Only operations that IEEE 754
// rounds correctly are used, and none are fused.
#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "base/split_mix.hpp"
#include "compress/powersgd.hpp"
#include "dtype/fp_mode.hpp"

namespace dsc {
namespace {

// Returns the logarithm of a positive number that is not denormal. With x = m * 2^e and m from sqrt(1/2) to
// sqrt(2), log(m) is 2 artanh((m - 1) / (m + 1)), whose series converges fast for such m.
double logarithm(double x) {
  constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & kFraction) | uint64_t{1023} << 52);
  if (m > std::numbers::sqrt2) {
    m /= 2;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double series = 0;
  for (int n = 23; n >= 1; n -= 2) series = series * square + 1.0 / n;
  return exponent * std::numbers::ln2 + 2 * s * series;
}

struct SineCosine {
  double sine, cosine;
};

// Returns sine and cosine of an angle of at most an eighth of a turn, by their Taylor series.
SineCosine of_small_angle(double angle) {
  const double square = angle * angle;
  double sine = 1, cosine = 1;
  for (int n = 18; n >= 2; n -= 2) {
    sine = 1 - square / (n * (n + 1)) * sine;
    cosine = 1 - square / ((n - 1) * n) * cosine;
  }
  return {angle * sine, cosine};
}

// Returns sine and cosine of `turns` full turns, from 0 to 1. It computes sine and cosine of the distance to
// the nearest quarter turn, and rotates the result by that number of quarters.
SineCosine of_turns(double turns) {
  const auto quarter = (static_cast<int>(turns * 8) + 1) / 2;
  const auto [s, c] = of_small_angle((turns - quarter * 0.25) * (2 * std::numbers::pi));
  switch (quarter % 4) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

}  // namespace

void fill_normal(uint64_t seed, std::span<float> out) {
  const FpMode mode;
  SplitMix64 random(seed);
  for (size_t at = 0; at < out.size(); at += 2) {
    const double above_zero =
        static_cast<double>((random.next() >> 11) + 1) * 0x1p-53;  // above 0, so that its logarithm is finite
    const double radius = std::sqrt(-2 * logarithm(above_zero));
    const auto [sine, cosine] = of_turns(static_cast<double>(random.next() >> 11) * 0x1p-53);
    out[at] = static_cast<float>(radius * cosine);
    if (at + 1 < out.size()) out[at + 1] = static_cast<float>(radius * sine);
  }
}

}  // namespace dsc
