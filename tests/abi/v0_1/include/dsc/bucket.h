/**
 * @file bucket.h
 * @brief Pure planning: which tensor goes into which bucket, and which sample to which rank.
 */
#ifndef DSC_BUCKET_H
#define DSC_BUCKET_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Groups tensors into buckets of about equal bytes; no memory is touched.
 *
 * The rules are those of PyTorch 2.7's bucket assignment. Tensors are taken in order. Every (dtype, device)
 * has a bucket of its own that is being filled and its own place in limits. A tensor is added first; when the
 * bucket then holds limits[place] bytes or more it is closed and the place moves on, staying at the last
 * limit. A tensor is never split. A tensor with expect_sparse gets a bucket of its own with limit 0. Without
 * order the buckets are sorted by their smallest index; with it they stand in the order in which they were
 * closed. Unfilled buckets come last, by the position of their first tensor (PyTorch leaves that order open).
 *
 * @param[in] counts elements of each tensor
 * @param[in] dtypes ::dsc_dtype of each tensor
 * @param[in] devices device of each tensor, any numbers; NULL: all the same
 * @param[in] expect_sparse 0 or 1, by tensor index (not by position); NULL: none
 * @param[in] order the tensor index at each position; each of 0 to n - 1 once; NULL: 0, 1, 2, ...
 * @param[in] n number of tensors, 1 or more
 * @param[in] limits bytes, 0 or more each
 * @param[in] n_limits 1 or more
 * @param[out] indices n tensor indices, bucket after bucket
 * @param[out] starts n + 1 entries, of which n_buckets + 1 are written: bucket b is indices[starts[b]] to
 * indices[starts[b + 1] - 1]
 * @param[out] bucket_limits n entries, of which n_buckets are written: the limit that each bucket was filled
 * by; may be NULL
 * @param[out] n_buckets number of buckets
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_plan(const size_t* counts, const dsc_dtype_t* dtypes, const int32_t* devices,
                                     const uint8_t* expect_sparse, const size_t* order, size_t n,
                                     const size_t* limits, size_t n_limits, size_t* indices, size_t* starts,
                                     size_t* bucket_limits, size_t* n_buckets);

/**
 * @brief Gives the samples of one shard: position p of the (shuffled) sequence belongs to shard p modulo
 * shards.
 *
 * So the same positions of all shards form consecutive samples of the sequence, and a global batch does not
 * depend on the number of shards. The shuffle is Fisher-Yates from the end, driven by SplitMix64 with
 * Lemire's bounded numbers: the same on every machine.
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
 * @param[out] n_indices number of samples of the shard
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM
 * @since 0.1
 */
DSC_API dsc_result_t dsc_shard_indices(size_t count, size_t shards, size_t shard, int32_t shuffle,
                                       uint64_t seed, int32_t drop_last, size_t* indices, size_t capacity,
                                       size_t* n_indices);

#ifdef __cplusplus
}
#endif

#endif /* DSC_BUCKET_H */
