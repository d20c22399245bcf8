// Input for tests of the kernels, and a way to run them with every instruction set.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "dtype/dtype.hpp"
#include "dtype_reference.hpp"
#include "hwy/targets.h"

namespace support {

using reference::Bf16;
using reference::F16;

inline constexpr std::array kFloats = {DSC_DTYPE_F16,  DSC_DTYPE_F32,    DSC_DTYPE_F64,
                                       DSC_DTYPE_BF16, DSC_DTYPE_F8E4M3, DSC_DTYPE_F8E5M2};
inline constexpr int kMaxSources = 5;
inline constexpr size_t kMaxCount = 1000;

// Runs `body` with every compiled instruction set that this processor supports.
template <typename Body>
void on_every_target(Body body) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const int64_t supported = hwy::SupportedTargets() & ~HWY_AVX3;  // AVX3 is not compiled in
#else
  const int64_t supported = hwy::SupportedTargets();
#endif
  for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_NEON, HWY_SCALAR}) {
    if (target != HWY_SCALAR && (supported & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Returns an edge case, an ordinary number or random bits.
template <typename T>
T element(std::mt19937_64& random) {
  const uint64_t bits = random();
  T value;
  std::memcpy(&value, &bits, sizeof value);
  if constexpr (std::is_floating_point_v<T>) {
    using Limits = std::numeric_limits<T>;
    const T special[] = {0,
                         -T{0},
                         1,
                         -1,
                         Limits::infinity(),
                         -Limits::infinity(),
                         Limits::quiet_NaN(),
                         -Limits::quiet_NaN(),
                         Limits::signaling_NaN(),
                         Limits::denorm_min(),
                         -Limits::denorm_min(),
                         Limits::min(),
                         -3 * Limits::denorm_min(),
                         Limits::max(),
                         Limits::lowest()};
    const uint64_t choice = random() % 64;
    if (choice < std::size(special)) return special[choice];
    if (choice < 48) return static_cast<T>(static_cast<int64_t>(bits) >> 40) / 1024;
  } else if constexpr (std::is_class_v<T>) {
    if (random() % 2 == 0) return T::from(static_cast<float>(static_cast<int64_t>(bits) >> 48) / 256);
  }
  return value;
}

template <typename T>
void fill_as(uint8_t* bytes, std::mt19937_64& random) {
  for (size_t i = 0; i < kMaxCount; ++i) {
    const T value = element<T>(random);
    std::memcpy(bytes + i * sizeof(T), &value, sizeof(T));
  }
}

inline void fill(int32_t dtype, uint8_t* bytes, std::mt19937_64& random) {
  if (dtype == DSC_DTYPE_F32) return fill_as<float>(bytes, random);
  if (dtype == DSC_DTYPE_F64) return fill_as<double>(bytes, random);
  if (dtype == DSC_DTYPE_F16) return fill_as<F16>(bytes, random);
  if (dtype == DSC_DTYPE_BF16) return fill_as<Bf16>(bytes, random);
  std::generate_n(bytes, kMaxCount * dsc::dtype_bytes(dtype), [&] { return static_cast<uint8_t>(random()); });
}

struct Arrays {
  static constexpr size_t kMargin = 128;
  std::vector<std::vector<uint8_t>> data;

  Arrays(int32_t dtype, int count, unsigned seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < count; ++i) {
      data.emplace_back(kMaxCount * 8 + 2 * kMargin, uint8_t{0xa5});
      fill(dtype, data.back().data() + kMargin, random);
    }
  }
};

}  // namespace support
