#include "partition/seed.hpp"

#include "base/error.hpp"
#include "base/split_mix.hpp"

namespace dsc {
namespace {

constexpr uint64_t kTensorOffset = 2718;
constexpr uint64_t kExpertOffset = 1024;
constexpr uint64_t kPerExpertRank = 100;

uint64_t rank_number(const char* name, int32_t rank) {
  if (rank < 0) fail(DSC_ERR_INVALID_ARG, "%s is %d, expected 0 or more", name, rank);
  return static_cast<uint64_t>(rank);
}

// Ranks are below 2^31, so the sum cannot overflow.
uint64_t offset_of(RandomRegion region, uint64_t tensor, uint64_t expert, uint64_t expert_tensor) {
  if (region == RandomRegion::kTensor) return kTensorOffset + tensor;
  if (region == RandomRegion::kExpert) return kExpertOffset + kPerExpertRank * expert + expert_tensor;
  return 0;
}

uint64_t checked_sum(uint64_t seed, uint64_t offset) {
  uint64_t result = 0;
  if (__builtin_add_overflow(seed, offset, &result))
    fail(DSC_ERR_OVERFLOW, "seed is %llu, expected at most %llu: %llu is added to it",
         static_cast<unsigned long long>(seed), static_cast<unsigned long long>(UINT64_MAX - offset),
         static_cast<unsigned long long>(offset));
  return result;
}

}  // namespace

uint64_t seed_layer(uint64_t seed, uint64_t layer) noexcept {
  // The sequence of layer seeds starts at the first number that the seed generates. Neighboring seeds
  // therefore have sequences that do not overlap.
  const uint64_t start = SplitMix64(seed).next();
  return SplitMix64(start + layer * SplitMix64::kStep).next();
}

uint64_t seed_layer(std::string_view method, uint64_t seed, uint64_t layer) {
  if (method == "split_mix") return seed_layer(seed, layer);
  if (method != "deepspeed")
    fail(DSC_ERR_INVALID_ARG, "unknown method '%.*s'; expected split_mix or deepspeed",
         static_cast<int>(method.size()), method.data());
  return checked_sum(seed, layer);
}

uint64_t seed_region(uint64_t seed, RandomRegion region, const RegionRanks& ranks) {
  const uint64_t tensor = rank_number("tensor_rank", ranks.tensor);
  const uint64_t expert = rank_number("expert_rank", ranks.expert);
  const uint64_t expert_tensor = rank_number("expert_tensor_rank", ranks.expert_tensor);
  return checked_sum(seed, offset_of(region, tensor, expert, expert_tensor));
}

}  // namespace dsc
