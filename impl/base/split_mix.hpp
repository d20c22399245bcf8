// SplitMix64 (Steele, Lea and Flood 2014), a generator whose state is a single number and which accepts any
// seed.
#pragma once

#include <cstdint>

namespace dsc {

class SplitMix64 {
 public:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;

  explicit constexpr SplitMix64(uint64_t seed) noexcept : state_(seed) {}

  constexpr uint64_t next() noexcept {
    uint64_t z = state_ += kStep;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

}  // namespace dsc
