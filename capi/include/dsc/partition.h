/**
 * @file partition.h
 * @brief Pure planning: which layers are on which stage of a pipeline.
 */
#ifndef DSC_PARTITION_H
#define DSC_PARTITION_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief How layers are spread. Fill with dsc_pipe_partition_options_init(). */
typedef struct dsc_pipe_partition_options {
  size_t struct_size;          /**< size of this struct as the caller compiled it */
  const char* method;          /**< see dsc_pipe_partition(); NULL (default): "bottleneck" */
  const uint64_t* layer_bytes; /**< memory that each layer takes, in bytes; NULL (default): no limits */
  const uint64_t* part_limits; /**< memory of each part, in bytes; NULL (default): no limits */
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
 * Methods, in small letters:
 * - "bottleneck": no part is empty; the list of the parts' weights, heaviest first, is the smallest possible
 * in dictionary order: the heaviest part is as light as can be, then the next-heaviest, and so on. Among
 * equal ones the last boundary is as late as possible, then the one before it, and so on. Exact where sums of
 * weights are exact in f64, as those of integers up to 2^53 are; otherwise up to the rounding of sums. With
 * limits of memory this holds among the partitions that keep them.
 * - "uniform": equal numbers of layers, one more in the first parts; weights are not read. DeepSpeed's
 * partition_uniform (deepspeed/runtime/utils.py, commit edaa722).
 * - "deepspeed_balanced": DeepSpeed's partition_balanced (same commit), which looks for a small difference
 * between the heaviest and the lightest part, layer by layer; the last of equally good ones.
 * - "uniform_v0", "deepspeed_balanced_v0": the same of DeepSpeed v0.9.5; what is left over is in the last
 * part; the heaviest part is searched for to within 0.001.
 *
 * With fewer layers than parts DeepSpeed's methods leave the last parts empty.
 *
 * @param[in] weights of each layer, finite and 0 or more, in any unit; may be NULL for the uniform methods
 * @param[in] n_layers number of layers; for "bottleneck" at least as many as parts; may be 0 for the others
 * @param[in] n_parts 1 to 2^31 - 1
 * @param[in] options NULL: defaults; limits of memory are for "bottleneck" only
 * @param[out] boundaries n_parts + 1 entries: part p holds the layers boundaries[p] to boundaries[p + 1] - 1
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * Cost: "bottleneck" takes about layers * parts comparisons of lists of at most `parts` numbers, and 20 bytes
 * per layer and part; with limits that differ between parts, up to layers^2 * parts comparisons.
 * "deepspeed_balanced" takes layers^2 * parts steps, and 4 bytes per layer and part.
 * @return DSC_OK; DSC_ERR_INVALID_ARG, also for an unknown method (the known ones are listed), and when no
 * partition keeps the limits (the first layer or part that cannot is named); DSC_ERR_OVERFLOW for more than
 * 2^24 layers times parts with a method that searches, and when sums do not fit; DSC_ERR_NOMEM
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_partition(const double* weights, size_t n_layers, size_t n_parts,
                                        const dsc_pipe_partition_options_t* options, size_t* boundaries);

#ifdef __cplusplus
}
#endif

#endif /* DSC_PARTITION_H */
