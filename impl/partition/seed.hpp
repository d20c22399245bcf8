// Computes seeds for random numbers, so that the numbers do not depend on how a model is distributed.
#pragma once

#include <cstdint>
#include <string_view>

namespace dsc {

// Implements the rule of dsc_rng_layer_seed().
uint64_t seed_layer(uint64_t seed, uint64_t layer) noexcept;

// `method` is "split_mix" for the rule above, or "deepspeed" for the sum of seed and layer. Throws
// INVALID_ARG for any other method, and OVERFLOW if the sum exceeds 64 bits.
uint64_t seed_layer(std::string_view method, uint64_t seed, uint64_t layer);

enum class RandomRegion : int32_t { kData = 1, kTensor = 2, kExpert = 3 };

// The ranks of this process in its parallel groups.
struct RegionRanks {
  int32_t tensor = 0;
  int32_t expert = 0;
  int32_t expert_tensor = 0;
};

// Returns the seed of a region, as Megatron-LM computes it. Throws INVALID_ARG for a negative rank, and
// OVERFLOW if the seed exceeds 64 bits.
uint64_t seed_region(uint64_t seed, RandomRegion region, const RegionRanks& ranks);

}  // namespace dsc
