/**
 * @file clip.h
 * @brief What limits the norm of gradients, in a reducer and in sharded parameters.
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
  dsc_comm_t*
      shards; /**< ranks that hold other parts of the same model, as in tensor or pipeline parallelism:
                 the norm is over all of them; NULL (default): this rank holds the whole model */
  const uint8_t*
      counted;      /**< by parameter: 0 leaves it out of the norm, because another rank of shards counts it,
                       as for tied parameters; it is scaled all the same. NULL (default): all count */
  double max_norm;  /**< gradients are scaled down so that their norm is at most this; infinity (default): not
                       limited */
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
