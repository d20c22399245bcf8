#include "dsc/rng.h"

#include "base/guard.hpp"
#include "checks.hpp"
#include "partition/seed.hpp"

namespace {

static_assert(static_cast<int32_t>(dsc::RandomRegion::kData) == DSC_RNG_REGION_DATA &&
                  static_cast<int32_t>(dsc::RandomRegion::kTensor) == DSC_RNG_REGION_TENSOR &&
                  static_cast<int32_t>(dsc::RandomRegion::kExpert) == DSC_RNG_REGION_EXPERT,
              "one set of numbers");

}  // namespace

dsc_result_t dsc_rng_layer_seed(uint64_t seed, uint64_t layer, const char* method, uint64_t* layer_seed) {
  return dsc::guard_pure(__func__, [&] {
    dsc::require(layer_seed, "layer_seed") = dsc::seed_layer(method ? method : "split_mix", seed, layer);
  });
}

dsc_result_t dsc_rng_region_seed(uint64_t seed, int32_t region, int32_t tensor_rank, int32_t expert_rank,
                                 int32_t expert_tensor_rank, uint64_t* region_seed) {
  return dsc::guard_pure(__func__, [&] {
    dsc::require(region_seed, "region_seed");
    if (region < DSC_RNG_REGION_DATA || region > DSC_RNG_REGION_EXPERT)
      dsc::fail(DSC_ERR_INVALID_ARG, "region is %d, expected 1 (data), 2 (tensor) or 3 (expert)", region);
    *region_seed = dsc::seed_region(seed, static_cast<dsc::RandomRegion>(region),
                                    {tensor_rank, expert_rank, expert_tensor_rank});
  });
}
