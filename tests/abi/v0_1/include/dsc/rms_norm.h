/**
 * @file rms_norm.h
 * @brief An all-reduce with the addition of a residual and RMSNorm, as transformers have it behind each
 * linear layer whose input is split over ranks (tensor parallelism).
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
 * Numbers: s is rounded to the type as dsc_all_reduce() does, then h', then y, each to nearest even;
 * the mean is that of the rounded h', as in vLLM's fused_add_rms_norm and in TensorRT-LLM's all-reduce with
 * residual and RMSNorm. f32, bf16 and f16 are computed in f32, f64 in f64; the mean, the root and the factor
 * of a row in f64, the factor rounded to the type of the computation, as is its product with h'_j. The
 * squares are added up in 64 sums, element j in sum j % 64. So a row has the same bits on all ranks, with any
 * processor, and whatever other rows are in the call. Squares above the largest f32 (f64) make a row's factor
 * 0. NaNs are canonical.
 */
#ifndef DSC_RMS_NORM_H
#define DSC_RMS_NORM_H

#include <dsc/comm.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Adds up the inputs of all ranks and a residual, and normalizes each row.
 *
 * Gives the bits of dsc_all_reduce() followed by the addition and RMSNorm, but works through blocks of rows,
 * at most 1 MiB or one row, so that a block is still in the cache when it is normalized. With a check for
 * inputs that are not finite all rows are one block. Nothing of the size of the input is allocated.
 *
 * @param[in] comm communicator
 * @param[in] input tokens x hidden elements, rows one after the other, in host memory as all others
 * @param[in] residual tokens x hidden elements, expected to be the same on all ranks, which is not compared;
 * NULL: none
 * @param[in] weight hidden elements, likewise; NULL: all are 1
 * @param[in] tokens number of rows, 0 or more; the same on all ranks
 * @param[in] hidden elements of a row, 1 or more; the same on all ranks
 * @param[in] dtype of all arrays: DSC_DTYPE_F32, _F64, _BF16 or _F16
 * @param[in] epsilon added to the mean of the squares, without a unit of its own; a normal positive number of
 * the type of the computation: 1.17549e-38 to 3.40282e+38, for DSC_DTYPE_F64 2.22507e-308 to 1.79769e+308. So
 * a row of zeros gives zeros. The same on all ranks
 * @param[out] residual_out tokens x hidden elements: the rows before they are normalized, h'; in place:
 * residual_out == residual or residual_out == input; NULL if not needed
 * @param[out] output tokens x hidden elements: the normalized rows, y; in place: output == input
 *
 * The outputs overlap neither each other nor an input, but for the words "in place"; not both may be the
 * input.
 *
 * Collective: yes. Blocking: until all rows are there; each block waits for the other ranks at most as long
 * as an operation of the communicator may take, and statistics and traces show it as an all_reduce.
 * Ownership: nothing is kept. Threads: one at a time per communicator.
 * @return DSC_OK; before other ranks can notice the call: DSC_ERR_INVALID_ARG; DSC_ERR_UNSUPPORTED for other
 * types and for memory of a device; DSC_ERR_OVERFLOW; DSC_ERR_STATE in a batch; DSC_ERR_MISMATCH, before
 * anything is written, if ranks differ in tokens, hidden, dtype, epsilon, or in whether they have a residual
 * or a weight; and the failures of an operation, after which the outputs are unspecified, but for
 * DSC_ERR_NONFINITE: all rows are there then
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
