/**
 * @file clip.h
 * @brief Options for limiting the norm of gradients, in a reducer and in sharded parameters.
 */
#ifndef DSC_CLIP_H
#define DSC_CLIP_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Options of dsc_bucket_reducer_clip() and dsc_sharded_clip(). Fill with dsc_clip_options_init(). */
typedef struct dsc_clip_options {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  dsc_comm_t* shards; /**< ranks with the other parts of the model (tensor, pipeline parallelism); the norm is
                         over all of them. NULL (default): this rank has the whole model */
  const uint8_t*
      counted; /**< [n_params] for each parameter, 0: not in the norm, because another rank of shards counts
                  it (tied parameters); it is still scaled. NULL (default): all are counted */
  double max_norm;  /**< gradients with a larger norm are scaled down to it; infinity (default): no limit */
  double scale;     /**< factor for all gradients, applied first, such as 1 / loss scale; default 1 */
  dsc_norm_t norm;  /**< default DSC_NORM_TWO */
  int32_t reserved; /**< 0 */
} dsc_clip_options_t;

/**
 * @brief Fills options with their defaults.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_clip_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_clip_options_init(dsc_clip_options_t* options, size_t struct_size);

#ifdef __cplusplus
}
#endif

#endif /* DSC_CLIP_H */
