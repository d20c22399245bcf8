/**
 * @file expert_parallel.h
 * @brief The exchange of tokens for mixture-of-experts layers (expert parallelism).
 *
 * The experts 0 to experts - 1 are divided over the ranks of a communicator: rank r of n holds the range that
 * dsc_tensor_map_part(experts, n, r) returns, which may be empty. A router assigns top_k experts to each
 * token. Each assignment is a **slot**; slot k of token t has the number t * top_k + k. A slot with expert -1
 * is not sent.
 *
 *     rows = dispatch(tokens)           each rank gets the rows for its experts
 *     rows = experts(rows)              the program's: a grouped matrix product
 *     out = combine(rows, weights)      out[t] = sum over k of weights[t][k] * row of slot (t, k)
 *
 * A **plan** is created from the router's assignment once per layer and step, and used by forward and
 * backward. It holds counts and permutations. The communicator owns the memory through which rows are
 * exchanged, and keeps it for later calls and plans until the communicator is destroyed.
 *
 * | call | direction of the rows | is the gradient of |
 * |---|---|---|
 * | dsc_moe_dispatch() | to the experts | |
 * | dsc_moe_combine() | back to the tokens, weighted | |
 * | dsc_moe_combine_backward() | to the experts | dsc_moe_combine() |
 * | dsc_moe_dispatch_backward() | back to the tokens, summed | dsc_moe_dispatch() |
 *
 * **Order of rows.** The rows that a rank receives are grouped by its experts, and within an expert by the
 * rank that sent them, then by slot. So each expert has consecutive rows; dsc_moe_plan_expert_rows() returns
 * how many.
 *
 * **Capacity.** By default no row is dropped. With capacity c, at most c rows of each pair of expert and
 * source rank are kept, as in GShard (arXiv:2006.16668, section 2.2, where a source is a group of tokens) and
 * Switch Transformer (arXiv:2101.03961, section 2.2). Megatron-LM also drops by position or by probability
 * (moe_utils.py, apply_router_token_dropping). A dropped slot adds nothing to its token, and gradients of and
 * through it are 0. With padded set, each pair of expert and source rank has exactly c rows; missing rows are
 * zeros, and all exchanges have the same size. Expert e (counted from the rank's first one) then has rows e *
 * n * c to (e + 1) * n * c - 1; they consist of n parts, and part s comes from source rank s.
 *
 * **8-bit floats.** With DSC_MOE_PAYLOAD_F8E4M3 a row travels as f8e4m3 with one f32 scale for each 128
 * elements, so it takes about a quarter or half of the bytes, as in DeepSeek-V3 (arXiv:2412.19437, section
 * 3.3.2) and DeepEP. The receiver decodes it to the type of the rows. For a block with largest magnitude m,
 * let s = max(m, 2^-100) / 448; then each element x arrives as y with |y - x| <= max(|x| / 16, s / 1024) * (1
 * + 2^-20), before y is rounded to the type. A block with an infinity or a NaN arrives as NaNs. Gradients are
 * not quantised.
 *
 * **Numbers.** Rows are f32, f64, bf16 or f16. Sums are taken in the order of the slots, in f32 (in f64 for
 * f64) with one rounding to the type; each product is also rounded to the type of the sum. Weights are f32,
 * or f64 if the rows are f64. Results have the same bits on every processor and for every number of ranks.
 *
 * **Devices.** The buffers of a call that exchanges rows are either all host memory or all memory of the
 * communicator's device; both kinds in one call are DSC_ERR_INVALID_ARG. If all buffers are empty, a stream
 * that is not NULL selects the device. A plan may be used for both. On a device a call queues kernels and the
 * exchange on its stream and does not wait for them; for streams and work objects see collectives.h. Any
 * number of calls on a plan may be in progress. Results have the same bits as on the host, except NaNs. On a
 * device DSC_MOE_PAYLOAD_F8E4M3 is DSC_ERR_UNSUPPORTED, and so are all calls if libdsc was built without its
 * kernels. The router's assignment must be in host memory, because the host needs the counts: copy expert_ids
 * from the device first. The first call of a plan on a device copies the plan's lists to the device and waits
 * only for that copy. The lists have at most 16 bytes for each row that this rank sends or receives, and 8
 * for each slot. Calls may be captured into a graph after an earlier call has loaded the kernels
 * (DSC_ERR_STATE otherwise); the plan must be kept until the graph is destroyed.
 *
 * **Work, threads, failures**: as in collectives.h, with these differences for host memory. A plan has one
 * call in progress at a time: the next call is DSC_ERR_STATE until the previous work has been waited for
 * (dsc_work_wait(), or dsc_work_test() that returns 1). The last step of a started call runs in that wait or
 * test. So results are complete only then, not when the descriptor of dsc_work_eventfd() becomes readable; if
 * the work is destroyed before, its outputs are unspecified. For all memory: buffers must be aligned to their
 * elements, and outputs must not overlap inputs. Calls are refused in a batch (DSC_ERR_STATE). Ranks that
 * differ in hidden, dtype or payload, or make different calls, get DSC_ERR_MISMATCH before anything is
 * written; on devices this holds for ranks of one host.
 */
#ifndef DSC_EXPERT_PARALLEL_H
#define DSC_EXPERT_PARALLEL_H

#include <dsc/comm.h>
#include <dsc/types.h>
#include <dsc/work.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief A plan for exchanging rows between tokens and experts. Its value is an id, never an address.
 * Thread-safety: one thread at a time for calls that exchange rows, any thread for queries and destroy. */
typedef struct dsc_moe_plan dsc_moe_plan_t;

/** @brief Options of a plan, the same on all ranks. Fill with dsc_moe_plan_options_init(). */
typedef struct dsc_moe_plan_options {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  size_t experts;  /**< number of experts over all ranks, 1 to 2^24; may be less than the number of ranks */
  size_t top_k;    /**< slots of each token, 1 (default) to 64 */
  size_t capacity; /**< limit on the rows of each pair of expert and source rank; 0 (default): no limit */
  dsc_moe_drop_t drop; /**< default DSC_MOE_DROP_LATEST; the other value needs a capacity */
  int32_t padded;      /**< 1: each pair of expert and source rank has exactly capacity rows; 0 (default) */
} dsc_moe_plan_options_t;

/** @brief The sizes of a plan on this rank. */
typedef struct dsc_moe_plan_info_t {
  size_t struct_size;   /**< size of this struct as the caller compiled it */
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
 * @brief Fills options with their defaults: one slot per token, no capacity; experts must be set.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_moe_plan_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_plan_options_init(dsc_moe_plan_options_t* options, size_t struct_size);

/**
 * @brief Creates a plan from the experts that the router chose for this rank's tokens.
 *
 * Ranks exchange how many rows they send to each expert, 8 bytes per expert. A plan keeps 8 bytes for each
 * expert of all ranks; its creation needs 32 temporarily.
 *
 * @param[in] comm communicator whose ranks hold the experts
 * @param[in] options options, not NULL: the number of experts has no default
 * @param[in] expert_ids [tokens * options.top_k] numbers of experts, in host memory; -1 for a slot that is
 * not sent; an expert may occur twice for a token
 * @param[in] tokens of this rank, 0 or more; may differ between ranks
 * @param[in] weights [tokens * options.top_k] router weights, in host memory, for DSC_MOE_DROP_LIGHTEST; may
 * be NULL with another drop policy, which ignores them
 * @param[out] plan the new plan; NULL after a failure
 *
 * Collective: yes. Blocking: until all ranks have called it. Ownership: the caller releases the plan with
 * dsc_moe_plan_destroy(); the arrays are not kept. Threads: one at a time per communicator.
 * @return DSC_OK; before other ranks can notice the call: DSC_ERR_INVALID_ARG, also for a wrong expert or a
 * NaN weight (the error gives its position); DSC_ERR_OVERFLOW; DSC_ERR_NOMEM; DSC_ERR_UNSUPPORTED;
 * DSC_ERR_STATE in a batch; DSC_ERR_MISMATCH if ranks differ in options; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_plan_create(dsc_comm_t* comm, const dsc_moe_plan_options_t* options,
                                         const int32_t* expert_ids, size_t tokens, const float* weights,
                                         dsc_moe_plan_t** plan);

/**
 * @brief Returns the sizes of a plan.
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
 * @param[out] rows one number per local expert; may be NULL with capacity 0
 * @param[in] capacity entries of rows; 0: only needed is written
 * @param[out] needed number of entries
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
 * @param[out] rows local_experts x n numbers; that of local expert e and source rank s is entry e * n + s;
 * may be NULL with capacity 0
 * @param[in] capacity entries of rows; 0: only needed is written
 * @param[out] needed number of entries
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return as dsc_moe_plan_expert_rows()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_plan_source_rows(const dsc_moe_plan_t* plan, size_t* rows, size_t capacity,
                                              size_t* needed);

/**
 * @brief Lists the permutation: the position of each slot's row among the rows that this rank sends.
 *
 * The rows are ordered by expert, then by slot; with padding expert e's first row is at (r * ceil(experts /
 * n) + e - first expert of r) * capacity, where r is the rank that holds e.
 *
 * @param[in] plan plan
 * @param[out] positions tokens x top_k numbers; -1 for a slot that is not sent or was dropped;
 * may be NULL with capacity 0
 * @param[in] capacity entries of positions; 0: only needed is written
 * @param[out] needed number of entries
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
 * @param[in] tokens [plan.tokens * hidden] elements; host memory is read before the call returns
 * @param[in] hidden elements of a row; the same on all ranks
 * @param[in] dtype DSC_DTYPE_F32, _F64, _BF16 or _F16; the same on all ranks
 * @param[in] payload format of the rows on the way; DSC_MOE_PAYLOAD_F8E4M3 is not allowed for f64
 * @param[out] rows [plan.rows * hidden] elements, in the order that the head of this file describes
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work the new work object, see the head of this file; may be NULL: the call blocks
 *
 * Collective: yes. Blocking: with work NULL until this rank's rows are complete; for device memory until the
 * operation is queued on the stream. Ownership: rows, and for device memory also tokens, must stay valid
 * until completion. Threads: one at a time per communicator.
 * @return DSC_OK or a failure, see the head of this file; DSC_ERR_BAD_HANDLE also if the communicator was
 * destroyed
 * @since 0.1
 */
DSC_API dsc_result_t dsc_moe_dispatch(dsc_moe_plan_t* plan, const void* tokens, size_t hidden,
                                      dsc_dtype_t dtype, dsc_moe_payload_t payload, void* rows, void* stream,
                                      dsc_work_t** work);

/**
 * @brief Computes the gradients of dsc_moe_dispatch(): each token gets the sum of the gradients of its rows.
 * @param[in] plan plan of the forward call
 * @param[in] row_gradients [plan.rows * hidden] elements; the values of padding do not matter. Must stay
 * untouched until completion
 * @param[in] hidden elements of a row; the same on all ranks
 * @param[in] dtype as in dsc_moe_dispatch()
 * @param[out] token_gradients [plan.tokens * hidden] elements; 0 for tokens without a row
 * @param[in] stream as in dsc_moe_dispatch()
 * @param[out] work the new work object, as in dsc_moe_dispatch(); may be NULL: the call blocks
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
 * @brief Sends the experts' rows back, and computes the weighted sum of the rows of each token.
 * @param[in] plan plan
 * @param[in] rows [plan.rows * hidden] elements in the order of dsc_moe_dispatch(); the values of padding
 * do not matter. Must stay untouched until completion
 * @param[in] weights [plan.tokens * plan.top_k of sum_dtype] factors, f64 if dtype is DSC_DTYPE_F64,
 * otherwise f32; must stay untouched until completion. NULL: all are 1
 * @param[in] hidden elements of a row; the same on all ranks
 * @param[in] dtype as in dsc_moe_dispatch()
 * @param[out] out [plan.tokens * hidden] elements; 0 for tokens without a row
 * @param[out] returned [plan.tokens * plan.top_k * hidden] elements: the returned rows, not weighted, 0 for
 * slots without a row; needed for the gradient of the weights. NULL if not needed
 * @param[in] stream as in dsc_moe_dispatch()
 * @param[out] work the new work object, as in dsc_moe_dispatch(); may be NULL: the call blocks
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
 * @brief Computes the gradients of dsc_moe_combine(): those of the rows, on the ranks of the experts, and
 * those of the weights, on the ranks of the tokens.
 * @param[in] plan plan of the forward call
 * @param[in] out_gradients [plan.tokens * hidden] elements; must stay untouched until completion
 * @param[in] weights [plan.tokens * plan.top_k of sum_dtype] as in dsc_moe_combine(). NULL: all are 1. Host
 * memory is read before the call returns
 * @param[in] returned [plan.tokens * plan.top_k * hidden] what dsc_moe_combine() wrote; must stay untouched
 * until completion. May be NULL if weight_gradients is NULL, which makes the call ignore it
 * @param[in] hidden elements of a row; the same on all ranks
 * @param[in] dtype as in dsc_moe_dispatch()
 * @param[out] row_gradients [plan.rows * hidden] elements: weight x gradient of out, rounded once
 * @param[out] weight_gradients [plan.tokens * plan.top_k of sum_dtype] numbers of the type of the weights:
 * dot products of the gradient of out and the returned row, summed in f64 and rounded once; 0 for slots
 * without a row. NULL if not needed
 * @param[in] stream as in dsc_moe_dispatch()
 * @param[out] work the new work object, as in dsc_moe_dispatch(); may be NULL: the call blocks
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
 * @brief Releases a plan. A call in progress continues; device memory is freed after the plan's work queued
 * on streams.
 * @param[in] plan plan; NULL does nothing
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
