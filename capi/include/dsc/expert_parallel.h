/**
 * @file expert_parallel.h
 * @brief The exchange of tokens for mixture-of-experts layers (expert parallelism).
 *
 * The experts 0 to experts - 1 are divided over the ranks of a communicator: rank r of n holds the range that
 * dsc_tensor_map_part(experts, n, r) gives, which may be empty. A router gives each token top_k experts. Each
 * of these is a **slot**; slot k of token t has the number t * top_k + k. A slot with expert -1 goes nowhere.
 *
 *     rows = dispatch(tokens)           each rank gets the rows for its experts
 *     rows = experts(rows)              the program's: a grouped matrix product
 *     out = combine(rows, weights)      out[t] = sum over k of weights[t][k] * row of slot (t, k)
 *
 * A **plan** is made from the router's choice once per layer and step; forward and backward use it. It holds
 * counts and permutations. The memory through which rows travel is the communicator's, which keeps it for
 * later calls and plans until it is destroyed.
 *
 * | call | direction of the rows | is the gradient of |
 * |---|---|---|
 * | dsc_moe_dispatch() | to the experts | |
 * | dsc_moe_combine() | back to the tokens, weighted | |
 * | dsc_moe_combine_backward() | to the experts | dsc_moe_combine() |
 * | dsc_moe_dispatch_backward() | back to the tokens, summed | dsc_moe_dispatch() |
 *
 * **Order of rows.** The rows that a rank receives are grouped by its experts, and within an expert by the
 * rank that sent them, then by slot. Expert e (counted from the rank's first one) so has consecutive rows:
 * dsc_moe_plan_expert_rows() tells how many.
 *
 * **Capacity.** By default no row is dropped. With capacity c, at most c rows of each pair of expert and
 * source rank are kept, as in GShard (arXiv:2006.16668, section 2.2, where a source is a group of tokens) and
 * Switch Transformer (arXiv:2101.03961, section 2.2); Megatron-LM drops by position or by probability alike
 * (moe_utils.py, apply_router_token_dropping). A dropped slot adds nothing to its token, and gradients
 * of and through it are 0. With padded set, each pair of expert and source rank has exactly c rows, those
 * that nobody sent are zeros, and all exchanges are of the same size: expert e has rows e * n * c to (e + 1)
 * * n * c - 1, and source s of these n parts the part s.
 *
 * **8-bit floats.** With DSC_MOE_PAYLOAD_F8E4M3 a row travels as f8e4m3 with one f32 scale for each 128
 * elements, a quarter or half of the bytes, as in DeepSeek-V3 (arXiv:2412.19437, section 3.3.2) and DeepEP.
 * It is decoded to the type of the rows where it arrives. For a block with largest magnitude m, let s =
 * max(m, 2^-100) / 448; then each element x arrives as y with |y - x| <= max(|x| / 16, s / 1024) * (1 +
 * 2^-20), before y is rounded to the type. A block with an infinity or a NaN arrives as NaNs. The gradient
 * goes unquantised.
 *
 * **Numbers.** Rows are f32, f64, bf16 or f16. Sums are taken in the order of the slots, in f32 with one
 * rounding to the type, f64 in f64; each product is rounded to that too. Weights are f32, f64 if the rows are
 * f64. Results have the same bits on every processor and for every number of ranks.
 *
 * **Devices.** All buffers of a call that exchanges rows are memory of the host, or all are memory of the
 * communicator's device (both kinds in one call are DSC_ERR_INVALID_ARG; where all of them are empty a stream
 * that is not NULL says that it is the device); a plan may be used for either. On a
 * device a call puts kernels and the exchange on its stream and waits for none of them, as collectives.h
 * says, also of works; any number of calls on a plan may be in progress. Results have the bits of the host,
 * but for NaNs. DSC_MOE_PAYLOAD_F8E4M3 is DSC_ERR_UNSUPPORTED there, and so are all calls if libdsc was built
 * without its kernels. The choice of the router is memory of the host (the counts that follow from it have to
 * be known there), so a program copies expert_ids from the device first. The first call of a plan on a device
 * copies the plan's lists there, at most 16 bytes for each row that it sends or receives and 8 for each slot,
 * and waits for that copy alone. Calls may be captured into a graph once a call before has loaded the kernels
 * (DSC_ERR_STATE otherwise); the plan must stay until the graph is destroyed.
 *
 * **Work, threads, failures**: as in collectives.h, with these differences for memory of the host. A plan has
 * one call in progress at a time: the next call is DSC_ERR_STATE until the work of the one before has been
 * waited for (dsc_work_wait() or dsc_work_test() that says 1). The last step of a started call happens in
 * that wait or test, so results are in place only then, not when the descriptor of dsc_work_eventfd() becomes
 * readable, and a work that is destroyed before leaves its outputs unspecified. For all memory: buffers are
 * aligned to their elements, and outputs overlap no input. Calls are refused in a batch (DSC_ERR_STATE).
 * Ranks that differ in hidden, dtype or payload, or make different calls, get DSC_ERR_MISMATCH before
 * anything is written, on devices when they are ranks of one host.
 */
#ifndef DSC_EXPERT_PARALLEL_H
#define DSC_EXPERT_PARALLEL_H

#include <dsc/comm.h>
#include <dsc/types.h>
#include <dsc/work.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief A plan says which row goes where. Its value is an id, never an address. Thread-safety:
 * one thread at a time for calls that exchange rows, any thread for queries and destroy. */
typedef struct dsc_moe_plan dsc_moe_plan_t;

/** @brief Options of a plan, the same on all ranks. Fill with dsc_moe_plan_options_init(). */
typedef struct dsc_moe_plan_options {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  size_t experts;     /**< on all ranks together, 1 to 2^24; may be less than the number of ranks */
  size_t top_k;       /**< slots of each token, 1 (default) to 64 */
  size_t capacity;    /**< most rows of each pair of expert and source rank; 0 (default): all are kept */
  dsc_moe_drop_t
      drop; /**< which rows are dropped; DSC_MOE_DROP_LATEST (default). The other one needs a capacity */
  int32_t padded; /**< 1: each pair of expert and source rank has exactly capacity rows; 0 (default) */
} dsc_moe_plan_options_t;

/** @brief What a plan knows of this rank. */
typedef struct dsc_moe_plan_info {
  size_t struct_size;   /**< to be set before the call */
  size_t tokens;        /**< of this rank */
  size_t top_k;         /**< slots of each token */
  size_t experts;       /**< on all ranks together */
  size_t first_expert;  /**< number of this rank's first expert */
  size_t local_experts; /**< experts of this rank */
  size_t rows;          /**< rows for this rank's experts, with padding */
  size_t sent;          /**< slots of this rank that are sent, to itself or to others */
  size_t dropped;       /**< slots of this rank that were dropped for lack of capacity */
} dsc_moe_plan_info_t;

/**
 * @brief Fills options with their defaults: no experts yet (to be set), one slot per token, no capacity.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_moe_plan_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_plan_options_init(dsc_moe_plan_options_t* options, size_t struct_size);

/**
 * @brief Makes a plan from the experts that the router chose for this rank's tokens.
 *
 * Ranks exchange how many rows they send to each expert, 8 bytes per expert. A plan keeps 8 bytes per expert,
 * also of the other ranks; making it takes 32 for a moment.
 *
 * @param[in] comm communicator over whose ranks the experts are divided
 * @param[in] options options, not NULL: the number of experts has no default
 * @param[in] expert_ids tokens x top_k numbers of experts in memory of the host, -1 for a slot that goes
 * nowhere; may name an expert twice for a token
 * @param[in] tokens of this rank, 0 or more; may differ between ranks
 * @param[in] weights tokens x top_k router weights in memory of the host, for DSC_MOE_DROP_LIGHTEST;
 * otherwise not read, may be NULL
 * @param[out] plan the new plan; NULL after a failure
 *
 * Collective: yes. Blocking: until all ranks have called it. Ownership: the caller's, to be given to
 * dsc_moe_plan_destroy(); the arrays are not kept. Threads: one at a time per communicator.
 * @return DSC_OK; before other ranks can notice the call: DSC_ERR_INVALID_ARG, also for a wrong expert or a
 * weight that is NaN, whose position is named; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM; DSC_ERR_UNSUPPORTED;
 * DSC_ERR_STATE in a batch; DSC_ERR_MISMATCH if ranks differ in options; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_plan_create(dsc_comm_t* comm, const dsc_moe_plan_options_t* options,
                                         const int32_t* expert_ids, size_t tokens, const float* weights,
                                         dsc_moe_plan_t** plan);

/**
 * @brief Tells the sizes of a plan.
 * @param[in] plan plan
 * @param[in,out] info struct_size must be set
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_plan_info(const dsc_moe_plan_t* plan, dsc_moe_plan_info_t* info);

/**
 * @brief Lists how many rows each expert of this rank receives, without padding.
 * @param[in] plan plan
 * @param[out] rows one number per local expert
 * @param[in] capacity entries that fit in rows; 0: only the needed size is given, rows may be NULL
 * @param[out] needed the needed size
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED if not all entries fit; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_plan_expert_rows(const dsc_moe_plan_t* plan, size_t* rows, size_t capacity,
                                              size_t* needed);

/**
 * @brief Lists how many rows each expert of this rank receives from each rank, without padding.
 * @param[in] plan plan
 * @param[out] rows local_experts x n numbers; that of local expert e and source rank s is entry e * n + s
 * @param[in] capacity entries that fit in rows; 0: only the needed size is given, rows may be NULL
 * @param[out] needed the needed size
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return as dsc_moe_plan_expert_rows()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_plan_source_rows(const dsc_moe_plan_t* plan, size_t* rows, size_t capacity,
                                              size_t* needed);

/**
 * @brief Lists the permutation: where the row of each slot stands among the rows that this rank sends.
 *
 * The rows are ordered by expert, then by slot; with padding expert e's first row is at (r * ceil(experts /
 * n) + e - first expert of r) * capacity, where r is the rank that holds e.
 *
 * @param[in] plan plan
 * @param[out] positions tokens x top_k numbers; -1 for a slot that goes nowhere or was dropped
 * @param[in] capacity entries that fit in positions; 0: only the needed size is given, positions may be NULL
 * @param[out] needed the needed size
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return as dsc_moe_plan_expert_rows()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_plan_positions(const dsc_moe_plan_t* plan, int64_t* positions, size_t capacity,
                                            size_t* needed);

/**
 * @brief Sends each token to its experts.
 * @param[in] plan plan
 * @param[in] tokens the plan's tokens x hidden elements; in memory of the host read before the call returns
 * @param[in] hidden elements of a row; the same on all ranks
 * @param[in] dtype DSC_DTYPE_F32, _F64, _BF16 or _F16; the same on all ranks
 * @param[in] payload how rows travel; DSC_MOE_PAYLOAD_F8E4M3 not for f64
 * @param[out] rows the plan's rows x hidden elements, in the order that the head of this file describes
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work NULL to block, else the new work object; see the head of this file
 *
 * Collective: yes. Blocking: with work NULL until this rank's rows are complete, for device memory until they
 * are on the stream. Ownership: rows, and in memory of a device tokens, must stay valid until completion.
 * Threads: one at a time per communicator.
 * @return DSC_OK; see the head of this file; DSC_ERR_BAD_HANDLE also if the communicator was destroyed
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_dispatch(dsc_moe_plan_t* plan, const void* tokens, size_t hidden,
                                      dsc_dtype_t dtype, dsc_moe_payload_t payload, void* rows, void* stream,
                                      dsc_work_t** work);

/**
 * @brief Computes the gradients of dsc_moe_dispatch(): each token gets the sum of the gradients of its rows.
 * @param[in] plan plan of the forward call
 * @param[in] row_gradients the plan's rows x hidden elements; those of padding are not read as numbers. Must
 * stay untouched until completion
 * @param[in] hidden elements of a row; the same on all ranks
 * @param[in] dtype as in dsc_moe_dispatch()
 * @param[out] token_gradients the plan's tokens x hidden elements; 0 for tokens without a row
 * @param[in] stream as in dsc_moe_dispatch()
 * @param[out] work as in dsc_moe_dispatch()
 *
 * Collective: yes. Blocking: as dsc_moe_dispatch(). Ownership: both buffers must stay valid until completion.
 * Threads: one at a time per communicator.
 * @return as dsc_moe_dispatch()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_dispatch_backward(dsc_moe_plan_t* plan, const void* row_gradients, size_t hidden,
                                               dsc_dtype_t dtype, void* token_gradients, void* stream,
                                               dsc_work_t** work);

/**
 * @brief Sends the rows of the experts back, and sums those of each token with their weights.
 * @param[in] plan plan
 * @param[in] rows the plan's rows x hidden elements in the order of dsc_moe_dispatch(); those of padding are
 * not read as numbers. Must stay untouched until completion
 * @param[in] weights tokens x top_k factors, f64 if dtype is DSC_DTYPE_F64, otherwise f32; must stay
 * untouched until completion. NULL: all are 1
 * @param[in] hidden elements of a row; the same on all ranks
 * @param[in] dtype as in dsc_moe_dispatch()
 * @param[out] out tokens x hidden elements; 0 for tokens without a row
 * @param[out] returned tokens x top_k x hidden elements: the rows as they came back, without their weights,
 * 0 for slots without a row; for the gradient of the weights. NULL if not needed
 * @param[in] stream as in dsc_moe_dispatch()
 * @param[out] work as in dsc_moe_dispatch()
 *
 * Collective: yes. Blocking: as dsc_moe_dispatch(). Ownership: all buffers must stay valid until completion.
 * Threads: one at a time per communicator.
 * @return as dsc_moe_dispatch()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_combine(dsc_moe_plan_t* plan, const void* rows, const void* weights,
                                     size_t hidden, dsc_dtype_t dtype, void* out, void* returned,
                                     void* stream, dsc_work_t** work);

/**
 * @brief Computes the gradients of dsc_moe_combine(): those of the rows, where the experts are, and those of
 * the weights, where the tokens are.
 * @param[in] plan plan of the forward call
 * @param[in] out_gradients tokens x hidden elements; must stay untouched until completion
 * @param[in] weights as in dsc_moe_combine(); in memory of the host read before the call returns
 * @param[in] returned what dsc_moe_combine() wrote; must stay untouched until completion. Not looked at, may
 * be NULL, if weight_gradients is NULL
 * @param[in] hidden elements of a row; the same on all ranks
 * @param[in] dtype as in dsc_moe_dispatch()
 * @param[out] row_gradients the plan's rows x hidden elements: weight x gradient of out, rounded once
 * @param[out] weight_gradients tokens x top_k numbers of the type of the weights: products of the gradient of
 * out and the returned row, summed in f64 and rounded once; 0 for slots without a row. NULL if not needed
 * @param[in] stream as in dsc_moe_dispatch()
 * @param[out] work as in dsc_moe_dispatch()
 *
 * Collective: yes. Blocking: as dsc_moe_dispatch(). Ownership: the buffers must stay valid until completion.
 * Threads: one at a time per communicator.
 * @return as dsc_moe_dispatch()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_combine_backward(dsc_moe_plan_t* plan, const void* out_gradients,
                                              const void* weights, const void* returned, size_t hidden,
                                              dsc_dtype_t dtype, void* row_gradients, void* weight_gradients,
                                              void* stream, dsc_work_t** work);

/**
 * @brief Frees a plan. A call that it has in progress goes on; memory of a device is freed behind what the
 * plan has put on streams.
 * @param[in] plan plan; NULL: nothing happens
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_plan_destroy(dsc_moe_plan_t* plan);

#ifdef __cplusplus
}
#endif

#endif /* DSC_EXPERT_PARALLEL_H */
