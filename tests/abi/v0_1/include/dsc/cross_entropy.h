/**
 * @file cross_entropy.h
 * @brief Cross entropy of logits with a vocabulary that is split over ranks (tensor parallelism).
 *
 * Rank r of n holds consecutive columns of the logits: vocab / n of them, and one more if r < vocab % n. With
 * vocab divisible by n these are Megatron-LM's ranges, r * vocab / n to (r + 1) * vocab / n - 1.
 *
 * For a token with logits x over the whole vocabulary of K words and target t, let
 * lse = log(sum_j exp(x_j)), log p_j = x_j - lse and s = label_smoothing * K / (K - 1):
 *
 *     loss = -(1 - s) * log p_t - s * mean_j(log p_j) + z_loss * lse^2
 *     d loss / d x_j = p_j * (1 + 2 * z_loss * lse) - (j == t ? 1 - s : 0) - s / K
 *
 * This is Megatron-LM's vocab_parallel_cross_entropy (megatron/core/tensor_parallel/cross_entropy.py, commit
 * d98e8a64), with two differences. First, K and the mean are those of the whole vocabulary; Megatron-LM uses
 * those of the rank's part, so its smoothed loss depends on the number of ranks. Second, it needs two
 * all-reduces instead of three. The z-loss is that of PaLM (arXiv:2204.02311, section 5).
 *
 * Numbers: exponentials, and their sums over blocks of 2,048 columns, are computed in f32, for f64 logits in
 * f64. All values per token are f64. Exponentials below 2^-126 of the largest (f64: 2^-1022) count as 0.
 * Logits may be -infinity, also all logits of one rank: such a word is masked and has probability 0. A masked
 * target makes the loss infinite; with label smoothing any masked word does. If a token's logits contain NaN
 * or +infinity, or are all -infinity, its loss and gradients are NaN; other tokens are not affected.
 */
#ifndef DSC_CROSS_ENTROPY_H
#define DSC_CROSS_ENTROPY_H

#include <dsc/comm.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Options of the cross entropy, the same on all ranks. Fill with
 * dsc_vocab_cross_entropy_options_init(). */
typedef struct dsc_vocab_cross_entropy_options {
  size_t struct_size;     /**< size of this struct as the caller compiled it */
  int64_t ignore_index;   /**< tokens with this target have loss 0 and gradient 0, and their logits are not
                             read; any value (PyTorch uses -100); INT64_MIN (default): none */
  double label_smoothing; /**< probability given to the other words, from 0 (default) to below 1 */
  double z_loss;          /**< factor of the z-loss, finite and 0 or more; default 0 */
} dsc_vocab_cross_entropy_options_t;

/**
 * @brief Fills options with their defaults: no target is ignored, no smoothing, no z-loss.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_vocab_cross_entropy_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_vocab_cross_entropy_options_init(dsc_vocab_cross_entropy_options_t* options,
                                                          size_t struct_size);

/**
 * @brief Computes the loss of each token.
 *
 * The logits are read once and not changed; the call allocates no memory of their size. It makes two
 * all-reduces: of the largest logits (8 bytes per token), then of the sums (16 bytes per token, 24 with label
 * smoothing).
 *
 * @param[in] comm communicator; its ranks hold the parts of the vocabulary in rank order
 * @param[in] logits [tokens * columns] rows of this rank's columns, one after the other, in host memory
 * @param[in] targets [tokens] entries, 0 to vocab - 1 or options->ignore_index; the same on all ranks
 * @param[in] tokens number of rows, 0 or more; the same on all ranks
 * @param[in] vocab columns over all ranks, 1 or more, 2 or more with label smoothing; may be less than the
 * number of ranks
 * @param[in] dtype of the logits: DSC_DTYPE_F32, _F64, _BF16 or _F16
 * @param[in] options NULL: defaults
 * @param[out] loss [tokens of sum_dtype] entries, f64 if dtype is DSC_DTYPE_F64, otherwise f32; the same bits
 * on all ranks if their C libraries compute the same logarithms
 * @param[out] state [2 * tokens] entries for dsc_vocab_cross_entropy_backward(): of token t the largest logit
 * at 2 * t, and the sum of exp(logit - largest) at 2 * t + 1, over the whole vocabulary; NULL if not needed
 *
 * Collective: yes. Blocking: until all ranks have called it. Ownership: nothing is kept; the outputs must not
 * overlap the inputs or each other. Threads: one at a time per communicator.
 * @return DSC_OK; before other ranks can notice the call: DSC_ERR_INVALID_ARG, also for a wrong target (the
 * error gives its position); DSC_ERR_UNSUPPORTED for other types and for device memory; DSC_ERR_OVERFLOW;
 * DSC_ERR_NOMEM; DSC_ERR_STATE in a batch; DSC_ERR_MISMATCH if ranks differ in targets, tokens, vocab, dtype
 * or options; and the failures of an operation. On failure the outputs are not changed.
 * @since 0.1
 */
DSC_API dsc_result_t dsc_vocab_cross_entropy_forward(dsc_comm_t* comm, const void* logits,
                                                     const int64_t* targets, size_t tokens, size_t vocab,
                                                     dsc_dtype_t dtype,
                                                     const dsc_vocab_cross_entropy_options_t* options,
                                                     void* loss, double* state);

/**
 * @brief Computes the gradients of this rank's logits, without communication.
 *
 * The softmax is recomputed from the logits, so between the two calls only the logits and 16 bytes per token
 * are kept. With gradient == logits the gradients overwrite the logits.
 *
 * @param[in] comm communicator of the forward call, also after it has failed
 * @param[in] logits [tokens * columns] as passed to dsc_vocab_cross_entropy_forward(), unchanged
 * @param[in] targets [tokens] likewise
 * @param[in] tokens likewise
 * @param[in] vocab likewise
 * @param[in] dtype likewise
 * @param[in] options likewise; NULL: defaults
 * @param[in] state [2 * tokens] entries, as dsc_vocab_cross_entropy_forward() wrote them
 * @param[in] loss_gradient [tokens of sum_dtype] gradient of each token's loss: tokens entries of the type of
 * the loss; NULL: 1 for all
 * @param[out] gradient [tokens * columns] gradients of the logits, in their shape and type; may be the
 * logits, otherwise it must not overlap an input
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_UNSUPPORTED for other types and for device memory;
 * DSC_ERR_OVERFLOW; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_vocab_cross_entropy_backward(const dsc_comm_t* comm, const void* logits,
                                                      const int64_t* targets, size_t tokens, size_t vocab,
                                                      dsc_dtype_t dtype,
                                                      const dsc_vocab_cross_entropy_options_t* options,
                                                      const double* state, const void* loss_gradient,
                                                      void* gradient);

#ifdef __cplusplus
}
#endif

#endif /* DSC_CROSS_ENTROPY_H */
