/**
 * @file sampler.h
 * @brief Plans which sample of a data set goes to which rank, without communication.
 */
#ifndef DSC_SAMPLER_H
#define DSC_SAMPLER_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Writes the samples of one shard: position p of the (shuffled) sequence belongs to shard p modulo
 * shards.
 *
 * So equal positions in all shards are consecutive samples of the sequence, and a global batch does not
 * depend on the number of shards. The shuffle is Fisher-Yates from the end, with SplitMix64 and Lemire's
 * bounded numbers. It is the same on every machine.
 *
 * @param[in] count samples, 1 or more
 * @param[in] shards number of shards, 1 or more
 * @param[in] shard 0 to shards - 1
 * @param[in] shuffle 1: shuffled by seed; 0: in order
 * @param[in] seed for example run seed plus epoch
 * @param[in] drop_last 1: every shard gets count / shards samples, rounded down; 0: rounded up, filled from
 * the start
 * @param[out] indices the samples; may be NULL with capacity 0
 * @param[in] capacity entries of indices
 * @param[out] needed number of samples of the shard
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sampler_indices(size_t count, size_t shards, size_t shard, int32_t shuffle,
                                         uint64_t seed, int32_t drop_last, size_t* indices, size_t capacity,
                                         size_t* needed);

#ifdef __cplusplus
}
#endif

#endif /* DSC_SAMPLER_H */
