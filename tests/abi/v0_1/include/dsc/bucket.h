/**
 * @file bucket.h
 * @brief Plans which tensor goes into which bucket, without communication.
 */
#ifndef DSC_BUCKET_H
#define DSC_BUCKET_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Options of dsc_bucket_plan(). Fill with dsc_bucket_plan_options_init(). */
typedef struct dsc_bucket_plan_options {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  const int32_t*
      devices; /**< [n] device of each tensor, any numbers; NULL (default): all on the same device */
  const uint8_t* expect_sparse; /**< [n] 0 or 1, by tensor index (not by position); NULL (default): none */
  const size_t* order; /**< [n] the tensor index at each position, each of 0 to n - 1 once; NULL (default): 0,
                          1, 2, ... */
  const size_t* limits; /**< bytes, 0 or more each; NULL (default): 1,048,576 and 26,214,400 */
  size_t n_limits;      /**< entries of limits; default 0 */
} dsc_bucket_plan_options_t;

/**
 * @brief Fills options with their defaults.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_bucket_plan_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_plan_options_init(dsc_bucket_plan_options_t* options, size_t struct_size);

/**
 * @brief Groups tensors into buckets of about equal size in bytes; only sizes are computed.
 *
 * The rules are those of PyTorch 2.7's bucket assignment. Tensors are taken in order. Each pair of dtype and
 * device has one open bucket and its own position in limits. A tensor is added to the open bucket; if the
 * bucket then holds at least as many bytes as the limit at that position, it is closed, and the position
 * advances, but not beyond the last limit. Tensors are never split. A tensor with expect_sparse gets a
 * separate bucket with limit 0. Without order, buckets are sorted by their smallest index; with order, they
 * are in the order in which they were closed. Unfilled buckets come last, by the position of their first
 * tensor (PyTorch does not define this order).
 *
 * @param[in] counts [n] elements of each tensor
 * @param[in] dtypes ::dsc_dtype of each tensor
 * @param[in] n number of tensors, 1 or more
 * @param[in] options NULL: defaults
 * @param[out] indices [n] tensor indices, bucket after bucket
 * @param[out] starts [n + 1] entries, of which n_buckets + 1 are written: bucket b is indices[starts[b]] to
 * indices[starts[b + 1] - 1]
 * @param[out] bucket_limits [n] entries, of which n_buckets are written: the limit that applied to each
 * bucket; may be NULL
 * @param[out] n_buckets number of buckets
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_plan(const size_t* counts, const dsc_dtype_t* dtypes, size_t n,
                                     const dsc_bucket_plan_options_t* options, size_t* indices,
                                     size_t* starts, size_t* bucket_limits, size_t* n_buckets);

#ifdef __cplusplus
}
#endif

#endif /* DSC_BUCKET_H */
