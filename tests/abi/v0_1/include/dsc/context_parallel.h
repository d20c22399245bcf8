/**
 * @file context_parallel.h
 * @brief Attention over a sequence that is split over ranks: exchange of sequence and heads, a ring for
 * blocks of keys and values, and an order of tokens that balances the work of a causal mask.
 *
 * The program computes the attention itself.
 *
 * **Sequence and heads.** dsc_sequence_to_heads() is the all-to-all of DeepSpeed-Ulysses (Jacobs et al.,
 * arXiv 2309.14509): outside the attention each rank has some tokens with all heads; inside it, all tokens
 * with some heads.
 *
 * **Ring.** In a ring each rank keeps its queries and receives the keys and values of all ranks, one block
 * per step: ring attention (Liu, Zaharia, Abbeel, arXiv 2310.01889). The program combines the steps with the
 * maximum and the sum of the exponentials of each row (Milakov and Gimelshein, arXiv 1805.02867). In the
 * backward pass the gradients of each block travel after it, and return to its rank as the sum over all
 * ranks.
 *
 * **Order.** With a causal mask and contiguous parts, the first rank has almost no work and the last one
 * almost all. In zig-zag order the sequence has 2 n chunks, and rank r of n holds chunks r and 2 n - 1 - r.
 * Then all ranks have the same work at each step. The context parallelism of Megatron-LM
 * (get_batch_on_this_cp_rank) and of Llama 3 (arXiv 2407.21783, section 3.3.2), and zigzag_ring_flash_attn,
 * use this order.
 */
#ifndef DSC_CONTEXT_PARALLEL_H
#define DSC_CONTEXT_PARALLEL_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Passes blocks around the ranks of a communicator. Thread-safety: one thread at a time, destroy from
 * any. */
typedef struct dsc_ring dsc_ring_t;

/** @brief How ranks divide a sequence. */
typedef int32_t dsc_sequence_order_t;

/** @brief Values of ::dsc_sequence_order_t. */
enum dsc_sequence_order {
  DSC_SEQUENCE_ORDER_CONTIGUOUS = 1, /**< rank r of n holds part r of n */
  DSC_SEQUENCE_ORDER_ZIGZAG = 2,     /**< rank r of n holds chunks r and 2 n - 1 - r of 2 n */
  DSC_SEQUENCE_ORDER_FORCE32 = 0x7fffffff
};

/** @brief The queries of a rank that attend to keys of a block, and these keys, as positions in the tokens of
 * the two ranks. */
typedef struct dsc_sequence_causal_range_t {
  size_t struct_size;  /**< size of this struct as the caller compiled it */
  size_t query_begin;  /**< first of this rank's queries that attend to a key of the block */
  size_t query_count;  /**< number of these queries; 0: none */
  size_t key_begin;    /**< first of the block's keys that they attend to */
  size_t key_count;    /**< number of these keys */
  int32_t is_diagonal; /**< 1: query i attends to the keys up to i; 0: all these queries attend to all these
                          keys */
  int32_t reserved;    /**< 0 */
} dsc_sequence_causal_range_t;

/** @brief The shape of what dsc_sequence_to_heads() exchanges. Fill with dsc_sequence_heads_options_init().
 */
typedef struct dsc_sequence_heads_options {
  size_t struct_size;           /**< size of this struct as the caller compiled it */
  const size_t* sequence_parts; /**< [size] one size per rank, whose sum is sequence; a size may be 0. NULL
                                   (default): equal parts */
  const size_t* head_parts; /**< [size] one size per rank, whose sum is heads; a size may be 0, for example
                               with fewer key heads than ranks. NULL (default): equal parts */
  size_t batch;             /**< number of sequences; default 1 */
  size_t sequence; /**< tokens of each whole sequence; must be set. Without sequence_parts a multiple of the
                      number of ranks */
  size_t heads;    /**< total number of heads; must be set. Without head_parts a multiple of the number of
                      ranks */
  size_t head_dim; /**< elements of a head; must be set */
} dsc_sequence_heads_options_t;

/**
 * @brief Fills options with their defaults: equal parts, a batch of 1; the other sizes must be set.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_sequence_heads_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sequence_heads_options_init(dsc_sequence_heads_options_t* options,
                                                     size_t struct_size);

/**
 * @brief Exchanges the divided dimension of [batch, sequence, heads, head_dim]: each rank's tokens with all
 * heads become all tokens with each rank's heads.
 *
 * With n ranks:
 *
 * - dsc_sequence_to_heads(): send is [batch, sequence / n, heads, head_dim], recv is [batch, sequence, heads
 * / n, head_dim].
 * - dsc_heads_to_sequence(): send is [batch, sequence, heads / n, head_dim], recv is [batch, sequence / n,
 * heads, head_dim].
 *
 * Each call is the gradient of the other one. Before the attention, queries, keys and values are exchanged
 * from sequence to heads; after it, the result is exchanged back. Gradients take the opposite way. The
 * program need not transpose anything. On one host, memory of dsc_mem_alloc() is read in place; otherwise the
 * library packs both ends, in memory of up to the size of send and recv together. On devices kernels pack in
 * stream order. For the layout [sequence, batch, heads, head_dim] use dsc_tensor_map_forward() with
 * DSC_TENSOR_MAPPING_SEQUENCE_TO_HIDDEN.
 *
 * @param[in] comm the ranks that divide the sequence
 * @param[in] options the sizes of the whole tensor
 * @param[in] send [input_count] input, row-major
 * @param[out] recv [output_count] output, row-major; must not overlap send, except that a group of one rank
 * takes recv == send
 * @param[in] dtype element type, a ::dsc_dtype
 * @param[in] stream see collectives.h
 * @param[out] work the new work object, see collectives.h; may be NULL: the call blocks
 *
 * Collective: yes, all ranks make the same call with the same sizes and parts (DSC_ERR_MISMATCH naming them,
 * before anything is written). Blocking, ownership, failures: see the head of collectives.h. Threads: one at
 * a time per communicator.
 * @return DSC_OK or a failure, as collectives.h says; DSC_ERR_INVALID_ARG also if a size without parts is not
 * a multiple of the number of ranks, or if the sum of its parts is not the size; DSC_ERR_UNSUPPORTED on a
 * device if libdsc was built without kernels; DSC_ERR_STATE if the kernels would have to be loaded during a
 * stream capture
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sequence_to_heads(dsc_comm_t* comm, const dsc_sequence_heads_options_t* options,
                                           const void* send, void* recv, dsc_dtype_t dtype, void* stream,
                                           dsc_work_t** work);

/**
 * @brief The reverse of dsc_sequence_to_heads(), and its gradient: all tokens with each rank's heads become
 * each rank's tokens with all heads.
 * @param[in] comm the ranks that divide the sequence
 * @param[in] options the sizes of the whole tensor, as for dsc_sequence_to_heads()
 * @param[in] send [input_count] input, row-major
 * @param[out] recv [output_count] output, row-major
 * @param[in] dtype element type, a ::dsc_dtype
 * @param[in] stream see collectives.h
 * @param[out] work the new work object, see collectives.h; may be NULL: the call blocks
 *
 * Collective: yes. Blocking, ownership: as dsc_sequence_to_heads(). Threads: one at a time per communicator.
 * @return as dsc_sequence_to_heads()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_heads_to_sequence(dsc_comm_t* comm, const dsc_sequence_heads_options_t* options,
                                           const void* send, void* recv, dsc_dtype_t dtype, void* stream,
                                           dsc_work_t** work);

/**
 * @brief Creates a ring, for any number of passes one after another.
 *
 * The ring has its own channel, so its messages do not wait for other operations of comm. The first pass in
 * host memory allocates memory for two blocks and three sums of gradients, as dsc_mem_alloc() does (none in a
 * group of one rank). So does the first pass on the device that comm is bound to, in its memory.
 *
 * @param[in] comm the ranks that divide the sequence; rank r sends to rank r + 1, the last one to rank 0
 * @param[in] block_bytes size of the longest block, 1 or more; equal on all ranks
 * @param[in] grad_bytes size of the gradients of the longest block; 0: the ring has no passes with gradients.
 * Equal on all ranks
 * @param[out] ring the new ring; NULL on failure
 *
 * Collective: yes. Blocking: until all ranks have called it. Ownership: the caller releases the ring with
 * dsc_ring_destroy(). Threads: one at a time per communicator.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW; DSC_ERR_MISMATCH naming the sizes when they differ
 * between ranks; comm keeps working; DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; DSC_ERR_FORKED; and the failures of an
 * operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_ring_create(dsc_comm_t* comm, size_t block_bytes, size_t grad_bytes,
                                     dsc_ring_t** ring);

/**
 * @brief Begins a pass, in which each rank gets the block of every rank.
 *
 * First all ranks compare the arguments of the pass. Then the transfer of the first block starts. A pass may
 * be left early if all ranks leave it after the same step: the next begin waits for running transfers and
 * discards them.
 *
 * **On a device** the pass runs in stream order. Each message is ordered after the work that is queued on the
 * stream when the call that starts it is made. dsc_ring_next() makes the stream wait for the next block, and
 * at the end for the sum; zeroing and sums are queued on the stream too. In this call the host waits only for
 * the other ranks, and in the first pass on a device until NCCL has connected the ranks. Queue the work that
 * uses a block on the stream, or make the stream wait for that work before the following call. A pass is
 * ordered after all earlier passes of the ring, also on another stream. A stream that is being captured is
 * refused.
 *
 * @param[in] ring ring
 * @param[in] block [count] this rank's block, for example its keys and then its values; not written
 * @param[in] count elements of this rank's block; 0 is valid
 * @param[in] counts [size] elements of each rank's block, one entry per rank, equal on all ranks;
 * counts[rank] must be count. NULL: every block has count elements
 * @param[in] dtype element type of the blocks
 * @param[out] grad [count of grad_dtype] elements: at the end of the pass, the sum of the gradients of this
 * rank's block; must not overlap block. May be NULL if grad_dtype is 0
 * @param[in] grad_dtype element type of gradients and of their sums. Each addition rounds to it, so use f32
 * for blocks of 16-bit floats; 0: a pass without gradients. On a device it must be a floating-point type
 * @param[in] stream for a pass on a device: its stream. block and grad must then be in memory of the device.
 * NULL: the default stream. With CUDA's per-thread default stream, make all calls of a pass from one thread.
 * Ignored for host memory. If count is 0, the stream decides where the pass runs: on the device unless it is
 * NULL (pass cudaStreamLegacy for the default stream)
 *
 * Collective: yes, on devices on all ranks or on none. Blocking: until all ranks have called it. Ownership:
 * block, grad and stream must stay valid and untouched until dsc_ring_next() returns source -1, the next pass
 * begins or the ring is destroyed (on a device: in stream order); block and grad must not be memory of the
 * ring. Threads: one at a time per ring.
 * @return DSC_OK; DSC_ERR_INVALID_ARG, also for a block that is larger than the ring's (the error gives both
 * sizes); DSC_ERR_OVERFLOW; DSC_ERR_UNSUPPORTED for a stream if comm is not bound to a device, and for
 * gradients on a device if they are not floats or libdsc was built without kernels; DSC_ERR_STATE if the
 * stream is being captured; DSC_ERR_MISMATCH naming the counts, types and kinds of memory of ranks that
 * differ, or the steps at which they left the previous pass: the ring is revoked, and comm keeps working;
 * DSC_ERR_NOSPACE or DSC_ERR_BACKEND on all ranks if one rank has no memory for the first pass;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; DSC_ERR_FORKED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_ring_begin(dsc_ring_t* ring, const void* block, size_t count, const size_t* counts,
                                    dsc_dtype_t dtype, void* grad, dsc_dtype_t grad_dtype, void* stream);

/**
 * @brief Waits for the next block of the pass and returns it.
 *
 * The first call returns this rank's block at once. Call i + 1 returns the block of rank (rank - i) mod n.
 * Call n + 1 returns source -1: the pass has ended, and grad of dsc_ring_begin() holds the sum of the
 * gradients of this rank's block. The next block is transferred while the caller computes.
 *
 * In a pass with gradients, *grad is zeroed. The caller writes or adds to it the gradients of the block from
 * this rank's queries, or leaves the zeros. The following call adds *grad to the sum of the previous ranks.
 * The sum for the block of rank r is taken in the order of ranks r, r + 1, to r - 1.
 *
 * On a device all this happens in the order of the stream of dsc_ring_begin(), and the call returns without
 * waiting for the device. If a message fails later, the following calls report it; after the last call
 * dsc_ring_synchronize() does.
 *
 * @param[in] ring ring
 * @param[in] timeout_ms milliseconds, 0 or more; -1: until the block has arrived. Every message also has the
 * time-out that the communicator had when the ring was created. On a device the host waits only in the first
 * pass, until NCCL has connected the ranks
 * @param[out] source rank that the block belongs to; -1: no block is left
 * @param[out] block [count of block_dtype] first element of the block, to read only; NULL if source is -1
 * @param[out] count elements of the block; 0 if source is -1
 * @param[out] grad [count of grad_dtype] address for the block's gradients; NULL in a pass without gradients
 * and if source is -1. The argument itself may be NULL in a pass without gradients
 *
 * Collective: yes, all ranks call it equally often. Blocking: until the block has arrived; on a device no,
 * the stream waits. Ownership: the ring's; block and grad are valid until the following call of this
 * function, dsc_ring_begin() or dsc_ring_destroy(). Threads: one at a time per ring.
 * @return DSC_OK; DSC_IN_PROGRESS if the time passed first: nothing was written, and the call may be
 * repeated; DSC_ERR_STATE if no pass is open or its stream is being captured; DSC_ERR_INVALID_ARG;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; DSC_ERR_FORKED; and the failures of an operation, after which the ring
 * cannot be used for another pass
 * @since 0.1
 */
DSC_API dsc_result_t dsc_ring_next(dsc_ring_t* ring, int32_t timeout_ms, int32_t* source, const void** block,
                                   size_t* count, void** grad);

/**
 * @brief Waits until the device has completed the work of earlier calls on the stream, and reports whether a
 * pass has failed.
 *
 * Call it before you rely on the results of the last pass on a device, since dsc_ring_next() does not wait
 * for the device.
 *
 * @param[in] ring ring
 * @param[in] timeout_ms milliseconds to wait; -1: the time-out that the communicator had when the ring was
 * created
 *
 * Collective: no. Blocking: until the device is done; not for host memory. Threads: one at a time per ring.
 * @return DSC_OK; DSC_IN_PROGRESS when the time has passed; the failure of the ring; DSC_ERR_STATE if the
 * stream of an open pass is being captured; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_ring_synchronize(dsc_ring_t* ring, int32_t timeout_ms);

/**
 * @brief Releases a ring.
 * @param[in] ring ring; NULL does nothing
 *
 * If a pass was not finished, the other ranks get DSC_ERR_REVOKED or DSC_ERR_PEER_LEFT, and comm keeps
 * working. Collective: no. Blocking: until this rank's transfers have stopped, and on a device until the
 * streams of the passes no longer use the ring, at most twice the time-out. If that passes, the memory on the
 * device is never freed, and the log says so. Threads: any; if another thread is in a call on the ring, the
 * ring is released when that call returns.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_ring_destroy(dsc_ring_t* ring);

/**
 * @brief Returns which tokens of a sequence a rank holds.
 *
 * Any count can be divided, as evenly as by dsc_tensor_map_part(): DSC_SEQUENCE_ORDER_CONTIGUOUS makes one
 * part per rank, DSC_SEQUENCE_ORDER_ZIGZAG two chunks per rank. All ranks have the same work if count is a
 * multiple of 2 x ranks.
 *
 * @param[in] order a ::dsc_sequence_order
 * @param[in] count tokens of the sequence
 * @param[in] ranks number of ranks, 1 or more
 * @param[in] rank rank, 0 to ranks - 1
 * @param[out] begins [2] first tokens of the rank's two ranges, in the order in which it holds them;
 * with DSC_SEQUENCE_ORDER_CONTIGUOUS the second range is empty
 * @param[out] lengths [2] numbers of tokens of the two ranges
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sequence_ranges(dsc_sequence_order_t order, size_t count, int32_t ranks,
                                         int32_t rank, size_t* begins, size_t* lengths);

/**
 * @brief Returns which part of a causal attention a rank computes with the block of one rank.
 *
 * In zig-zag order it is the diagonal for its own block; all queries and the first half of the keys for the
 * block of a lower rank; the second half of the queries and all keys for that of a higher rank. In contiguous
 * order it is the diagonal, everything and nothing, in the same three cases.
 *
 * @param[in] order a ::dsc_sequence_order
 * @param[in] count tokens of the sequence
 * @param[in] ranks number of ranks, 1 or more
 * @param[in] rank rank that holds the queries, 0 to ranks - 1
 * @param[in] source rank that holds the keys, 0 to ranks - 1
 * @param[in,out] range the result; its struct_size must be set
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sequence_causal_range(dsc_sequence_order_t order, size_t count, int32_t ranks,
                                               int32_t rank, int32_t source,
                                               dsc_sequence_causal_range_t* range);

#ifdef __cplusplus
}
#endif

#endif /* DSC_CONTEXT_PARALLEL_H */
