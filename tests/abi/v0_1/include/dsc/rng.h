/**
 * @file rng.h
 * @brief Seeds of random numbers that do not depend on how a model is split.
 */
#ifndef DSC_RNG_H
#define DSC_RNG_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief A region of a model: it decides which ranks share random numbers. */
typedef int32_t dsc_rng_region_t;

/** @brief Values of ::dsc_rng_region_t. */
enum dsc_rng_region {
  DSC_RNG_REGION_DATA = 1,   /**< the same on all ranks of a tensor-parallel group */
  DSC_RNG_REGION_TENSOR = 2, /**< different on each rank of a tensor-parallel group */
  DSC_RNG_REGION_EXPERT = 3, /**< different on ranks that hold different experts or parts of them */
  DSC_RNG_REGION_FORCE32 = 0x7fffffff
};

/**
 * @brief Returns the seed of one layer. It depends only on seed and layer, never on stages or ranks.
 *
 * - "split_mix" (default): with next(state) for SplitMix64's step, state += 0x9e3779b97f4a7c15, z = state, z
 * = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9, z = (z ^ (z >> 27)) * 0x94d049bb133111eb, z ^ (z >> 31), all modulo
 * 2^64. Let first be the first number of the sequence with initial state `seed`. The result is number
 * `layer`, counted from 0, of the sequence with initial state first. Different layers of one seed have
 * different seeds.
 * - "deepspeed": seed + layer, as DeepSpeed's PipelineModule does with seed_layers and base_seed
 * (deepspeed/runtime/pipe/module.py, commit edaa722). Neighbouring seeds give almost all layers the same
 * random numbers, shifted by one layer.
 *
 * @param[in] seed seed of the run, any value; DeepSpeed's base_seed is 1234 by default
 * @param[in] layer index of the layer in the whole model
 * @param[in] method name of the method, in lower case; NULL: "split_mix"
 * @param[out] layer_seed the seed of the layer
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG, also for an unknown method; DSC_ERR_OVERFLOW when the sum does not fit
 * 64 bits
 * @since 0.1
 */
DSC_API dsc_result_t dsc_rng_layer_seed(uint64_t seed, uint64_t layer, const char* method,
                                        uint64_t* layer_seed);

/**
 * @brief Returns the seed of a region on one rank, with Megatron's numbers (megatron/core/tensor_parallel).
 *
 * DSC_RNG_REGION_DATA: seed. DSC_RNG_REGION_TENSOR: seed + 2718 + tensor_rank. DSC_RNG_REGION_EXPERT: seed +
 * 1024 + 100 * expert_rank + expert_tensor_rank.
 *
 * @param[in] seed seed of the run, or of the stage
 * @param[in] region the region
 * @param[in] tensor_rank rank in the tensor-parallel group, 0 or more
 * @param[in] expert_rank rank in the expert-parallel group, 0 or more
 * @param[in] expert_tensor_rank rank in the tensor-parallel group of the experts, 0 or more
 * @param[out] region_seed the seed
 *
 * Ranks that the region does not need are checked but not used. Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW when the sum does not fit 64 bits
 * @since 0.1
 */
DSC_API dsc_result_t dsc_rng_region_seed(uint64_t seed, dsc_rng_region_t region, int32_t tensor_rank,
                                         int32_t expert_rank, int32_t expert_tensor_rank,
                                         uint64_t* region_seed);

#ifdef __cplusplus
}
#endif

#endif /* DSC_RNG_H */
