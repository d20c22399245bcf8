// Seeds of random numbers that must not depend on how a model is spread.
#pragma once

#include <cstdint>
#include <string_view>

namespace dsc {

// The rule of dsc_seed_layer().
uint64_t seed_layer(uint64_t seed, uint64_t layer) noexcept;

// "split_mix" is the rule above, "deepspeed" the sum. Throws INVALID_ARG for another method, OVERFLOW.
uint64_t seed_layer(std::string_view method, uint64_t seed, uint64_t layer);

enum class RandomRegion : int32_t { kData = 1, kTensor = 2, kExpert = 3 };

struct RegionRanks {
  int32_t tensor = 0;
  int32_t expert = 0;
  int32_t expert_tensor = 0;
};

// Megatron's numbers; throws INVALID_ARG for a rank below 0 and OVERFLOW beyond 64 bits.
uint64_t seed_region(uint64_t seed, RandomRegion region, const RegionRanks& ranks);

}  // namespace dsc
