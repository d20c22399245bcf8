/**
 * @file rms_norm.h
 * @brief All-reduce, addition of a residual and RMSNorm in one call, as transformers need them after each
 * linear layer with a split input (tensor parallelism).
 *
 * For each row of `hidden` elements, with x_r the input of rank r of n, residual h and weight w:
 *
 *     s = x_0 + x_1 + ... + x_(n-1)
 *     h' = s + h
 *     y_j = h'_j / sqrt(mean_k(h'_k ^ 2) + epsilon) * w_j
 *
 * RMSNorm is that of Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019 (arXiv:1910.07467),
 * with the epsilon that implementations add.
 *
 * Numbers: s is rounded to the type as by dsc_all_reduce(), then h', then y, each to nearest even. The mean
 * is that of the rounded h', as in vLLM's fused_add_rms_norm and in TensorRT-LLM's all-reduce with residual
 * and RMSNorm. f32, bf16 and f16 are computed in f32, f64 in f64. The mean, the root and the factor of a row
 * are computed in f64; the factor, and its product with h'_j, are rounded to the type of the computation. The
 * squares are added in 64 sums, element j in sum j % 64. So a row has the same bits on all ranks, on any
 * processor, and with any other rows in the call. If a square or a sum of squares overflows the type of the
 * computation, the factor of the row is 0. NaNs are canonical.
 */
#ifndef DSC_RMS_NORM_H
#define DSC_RMS_NORM_H

#include <dsc/comm.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Sums the inputs of all ranks and a residual, and normalizes each row.
 *
 * The result has the same bits as dsc_all_reduce() followed by the addition and RMSNorm. The call processes
 * blocks of rows, of at most 1 MiB or one row, so that a block is still in the cache when it is normalized.
 * With a non-finite check all rows are one block. The call allocates no memory of the size of the input.
 *
 * @param[in] comm communicator
 * @param[in] input [tokens * hidden] elements, rows one after the other; all buffers must be in host memory
 * @param[in] residual [tokens * hidden] elements; must be the same on all ranks, which is not checked; NULL:
 * none
 * @param[in] weight [hidden] elements; must also be the same on all ranks; NULL: all are 1
 * @param[in] tokens number of rows, 0 or more; the same on all ranks
 * @param[in] hidden elements of a row, 1 or more; the same on all ranks
 * @param[in] dtype of all arrays: DSC_DTYPE_F32, _F64, _BF16 or _F16
 * @param[in] epsilon added to the mean of the squares; a normal positive number of the type of the
 * computation: 1.17549e-38 to 3.40282e+38, for DSC_DTYPE_F64 2.22507e-308 to 1.79769e+308. So the result of a
 * row of zeros is zeros. The same on all ranks
 * @param[out] residual_out [tokens * hidden] elements: the rows before they are normalized, h'; in place:
 * residual_out == residual or residual_out == input; NULL if not needed
 * @param[out] output [tokens * hidden] elements: the normalized rows, y; in place: output == input
 *
 * Except as described by "in place", the outputs must not overlap each other or an input. Only one of them
 * may be the input.
 *
 * Collective: yes. Blocking: until all rows are complete; each block has the communicator's time-out, and
 * statistics and traces show it as an all_reduce. Ownership: nothing is kept. Threads: one at a time per
 * communicator.
 * @return DSC_OK; before other ranks can notice the call: DSC_ERR_INVALID_ARG; DSC_ERR_UNSUPPORTED for other
 * types and for device memory; DSC_ERR_OVERFLOW; DSC_ERR_STATE in a batch; DSC_ERR_MISMATCH, before anything
 * is written, if ranks differ in tokens, hidden, dtype, epsilon, or in whether they pass a residual or a
 * weight; and the failures of an operation, after which the outputs are unspecified (after DSC_ERR_NONFINITE
 * they are complete)
 * @since 0.1
 */
DSC_API dsc_result_t dsc_all_reduce_rms_norm(dsc_comm_t* comm, const void* input, const void* residual,
                                             const void* weight, size_t tokens, size_t hidden,
                                             dsc_dtype_t dtype, double epsilon, void* residual_out,
                                             void* output);

#ifdef __cplusplus
}
#endif

#endif /* DSC_RMS_NORM_H */
