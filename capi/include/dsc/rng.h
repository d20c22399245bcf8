/**
 * @file rng.h
 * @brief Seeds of random numbers that do not depend on how a model is divided.
 */
#ifndef DSC_RNG_H
#define DSC_RNG_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief A region of a model, by which ranks share its random numbers. */
typedef int32_t dsc_rng_region_t;

/** @brief Values of ::dsc_rng_region_t. */
enum dsc_rng_region {
  DSC_RNG_REGION_DATA = 1,   /**< the same on all ranks of a tensor-parallel group */
  DSC_RNG_REGION_TENSOR = 2, /**< different on each rank of a tensor-parallel group */
  DSC_RNG_REGION_EXPERT = 3, /**< different on each rank that holds other experts, or other parts of them */
  DSC_RNG_REGION_FORCE32 = 0x7fffffff
};

/**
 * @brief Gives the seed of one layer: it depends on seed and layer only, never on stages or ranks.
 *
 * - "split_mix" (default): with next(state) for SplitMix64's step, state += 0x9e3779b97f4a7c15, z = state,
 * z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9, z = (z ^ (z >> 27)) * 0x94d049bb133111eb, z ^ (z >> 31), all
 * modulo 2^64: the result is number `layer`, counted from 0, of the sequence that begins at the state which
 * is the first number of the sequence that begins at the state `seed`. Different layers of one seed have
 * different seeds.
 * - "deepspeed": seed + layer, as DeepSpeed's PipelineModule (deepspeed/runtime/pipe/module.py, commit
 * edaa722) seeds layers with seed_layers and base_seed. Neighbouring seeds share the numbers of almost all
 * layers.
 *
 * @param[in] seed of the run, any; DeepSpeed's base_seed is 1234 by default
 * @param[in] layer index of the layer in the whole model
 * @param[in] method in small letters; NULL: "split_mix"
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
 * @brief Gives the seed of a region on one rank, with Megatron's numbers (megatron/core/tensor_parallel).
 *
 * DSC_RNG_REGION_DATA: seed. DSC_RNG_REGION_TENSOR: seed + 2718 + tensor_rank. DSC_RNG_REGION_EXPERT: seed +
 * 1024 + 100 * expert_rank + expert_tensor_rank.
 *
 * @param[in] seed of the run, or of the stage
 * @param[in] region which one
 * @param[in] tensor_rank rank in the tensor-parallel group, 0 or more
 * @param[in] expert_rank rank in the expert-parallel group, 0 or more
 * @param[in] expert_tensor_rank rank in the tensor-parallel group of the experts, 0 or more
 * @param[out] region_seed the seed
 *
 * Ranks that the region does not need are checked and not used. Collective: no. Blocking: no. Threads: any.
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
