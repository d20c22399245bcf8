/**
 * @file partition.h
 * @brief Plans which layers are on which stage of a pipeline, without communication.
 */
#ifndef DSC_PARTITION_H
#define DSC_PARTITION_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Options of dsc_pipe_partition(). Fill with dsc_pipe_partition_options_init(). */
typedef struct dsc_pipe_partition_options {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  const char* method; /**< see dsc_pipe_partition(); NULL (default): "bottleneck" */
  const uint64_t*
      layer_bytes; /**< [n_layers] bytes of memory that each layer needs; NULL (default): no limits */
  const uint64_t* part_limits; /**< bytes of memory of each part; NULL (default): no limits */
  size_t n_part_limits;        /**< entries of part_limits: 1 for all parts, or one for each; default 0 */
} dsc_pipe_partition_options_t;

/**
 * @brief Fills partition options with their defaults: "bottleneck" without limits.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_pipe_partition_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_partition_options_init(dsc_pipe_partition_options_t* options,
                                                     size_t struct_size);

/**
 * @brief Cuts a list of layers into consecutive parts, one per stage.
 *
 * Methods, in lower case:
 * - "bottleneck": no part is empty. The heaviest part is as light as possible, then the next-heaviest, and so
 * on: the list of the parts' weights, heaviest first, is the smallest in lexicographic order. Among equal
 * partitions the last boundary is as late as possible, then the one before it, and so on. The result is exact
 * if sums of weights are exact in f64, as for integers up to 2^53; otherwise it is exact up to the rounding
 * of sums. With memory limits, only partitions within the limits are considered.
 * - "uniform": equal numbers of layers, with one more in the first parts if needed; weights are ignored.
 * DeepSpeed's partition_uniform (deepspeed/runtime/utils.py, commit edaa722).
 * - "deepspeed_balanced": DeepSpeed's partition_balanced (same commit), which searches, layer by layer, for a
 * small difference between the heaviest and the lightest part, and takes the last of equally good partitions.
 * - "uniform_v0", "deepspeed_balanced_v0": the methods of DeepSpeed v0.9.5; the remainder is in the last
 * part; the weight of the heaviest part is searched to within 0.001.
 *
 * If the model has fewer layers than parts, DeepSpeed's methods leave the last parts empty.
 *
 * @param[in] weights [n_layers] weight of each layer, finite and 0 or more, in any unit; may be NULL for the
 * uniform methods
 * @param[in] n_layers number of layers; for "bottleneck" at least as many as parts; may be 0 for the others
 * @param[in] n_parts 1 to 2^31 - 1
 * @param[in] options NULL: defaults; memory limits are for "bottleneck" only
 * @param[out] boundaries [n_parts + 1] entries: part p holds the layers boundaries[p] to boundaries[p + 1] -
 * 1
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 *
 * Cost: "bottleneck" takes about layers * parts comparisons of lists of at most `parts` numbers, and 20 bytes
 * per layer and part; with limits that differ between parts, up to layers^2 * parts comparisons.
 * "deepspeed_balanced" takes layers^2 * parts steps, and 4 bytes per layer and part.
 * @return DSC_OK; DSC_ERR_INVALID_ARG, also for an unknown method (the error lists the valid ones), and when
 * no partition is within the limits (the error names the first layer or part that is not); DSC_ERR_OVERFLOW
 * for more than 2^24 layers times parts with a method that searches, and when a sum does not fit;
 * DSC_ERR_NOMEM
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_partition(const double* weights, size_t n_layers, size_t n_parts,
                                        const dsc_pipe_partition_options_t* options, size_t* boundaries);

#ifdef __cplusplus
}
#endif

#endif /* DSC_PARTITION_H */
