// Seeds of random numbers that do not depend on how a model is distributed.
#pragma once

#include <cstdint>
#include <string_view>

namespace dsc {

// Implements the rule of dsc_rng_layer_seed().
uint64_t seed_layer(uint64_t seed, uint64_t layer) noexcept;

// "split_mix" is the rule above, and "deepspeed" adds the two numbers. Throws INVALID_ARG for another method,
// OVERFLOW.
uint64_t seed_layer(std::string_view method, uint64_t seed, uint64_t layer);

enum class RandomRegion : int32_t { kData = 1, kTensor = 2, kExpert = 3 };

// Ranks of the calling process in its parallel groups.
struct RegionRanks {
  int32_t tensor = 0;
  int32_t expert = 0;
  int32_t expert_tensor = 0;
};

// Follows Megatron-LM. Throws INVALID_ARG for a negative rank, OVERFLOW beyond 64 bits.
uint64_t seed_region(uint64_t seed, RandomRegion region, const RegionRanks& ranks);

}  // namespace dsc
