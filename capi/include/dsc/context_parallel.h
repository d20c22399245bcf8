/**
 * @file context_parallel.h
 * @brief Attention over a sequence that the ranks divide: exchange of sequence and heads, blocks of keys and
 * values that go around a ring, and the order of tokens that makes a causal mask the same work for all ranks.
 *
 * The products of the attention stay with the caller.
 *
 * **Sequence and heads.** dsc_sequence_to_heads() is the all-to-all of DeepSpeed-Ulysses (Jacobs et al.,
 * arXiv 2309.14509): before the attention each rank has some tokens with all heads, within it all tokens with
 * some heads.
 *
 * **Ring.** With a ring each rank keeps its queries, and the keys and values of all ranks come by, one block
 * a step: ring attention (Liu, Zaharia, Abbeel, arXiv 2310.01889). The caller combines the steps by the
 * maximum and the sum of the exponentials of each row (Milakov and Gimelshein, arXiv 1805.02867). In the
 * backward pass the gradients of each block travel behind it, and come home as the sum over all ranks.
 *
 * **Order.** With a causal mask and contiguous parts the first rank has almost nothing to do and the last one
 * almost everything. In zig-zag order the sequence has 2 n chunks and rank r of n holds chunks r and 2 n - 1
 * - r: then all ranks have the same work at each step. So do the context parallelism of Megatron-LM
 * (get_batch_on_this_cp_rank) and of Llama 3 (arXiv 2407.21783, section 3.3.2), and zigzag_ring_flash_attn.
 */
#ifndef DSC_CONTEXT_PARALLEL_H
#define DSC_CONTEXT_PARALLEL_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Blocks that go around the ranks of a communicator. Thread-safety: one thread at a time, destroy
 * from any. */
typedef struct dsc_ring dsc_ring_t;

/** @brief How ranks divide a sequence. */
typedef int32_t dsc_sequence_order_t;

/** @brief Values of ::dsc_sequence_order_t. */
enum dsc_sequence_order {
  DSC_SEQUENCE_ORDER_CONTIGUOUS = 1, /**< rank r of n holds part r of n */
  DSC_SEQUENCE_ORDER_ZIGZAG = 2,     /**< rank r of n holds chunks r and 2 n - 1 - r of 2 n */
  DSC_SEQUENCE_ORDER_FORCE32 = 0x7fffffff
};

/** @brief Says which queries of a rank see which keys of a block, as positions in what the two ranks hold. */
typedef struct dsc_sequence_causal_range {
  size_t struct_size;  /**< size of this struct as the caller compiled it */
  size_t query_begin;  /**< first of this rank's queries that see something */
  size_t query_count;  /**< number of these queries; 0: none sees any of the keys */
  size_t key_begin;    /**< first of the block's keys that they see */
  size_t key_count;    /**< number of these keys */
  int32_t is_diagonal; /**< 1: query i sees the keys up to i; 0: all of these queries see all of these keys */
  int32_t reserved;    /**< 0 */
} dsc_sequence_causal_range_t;

/** @brief The shape of what dsc_sequence_to_heads() exchanges. Fill with dsc_sequence_heads_options_init().
 */
typedef struct dsc_sequence_heads_options {
  size_t struct_size;           /**< size of this struct as the caller compiled it */
  const size_t* sequence_parts; /**< one size per rank, whose sum is sequence; a size may be 0. NULL
                                   (default): equal parts */
  const size_t* head_parts; /**< one size per rank, whose sum is heads; a size may be 0, as with fewer heads
                               of keys than ranks. NULL (default): equal parts */
  size_t batch;             /**< number of sequences; default 1 */
  size_t sequence; /**< tokens of each whole sequence; without sequence_parts a multiple of the number
                      of ranks */
  size_t heads;    /**< all heads; without head_parts a multiple of the number of ranks */
  size_t head_dim; /**< elements of a head */
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
 * | call | send | recv |
 * |---|---|---|
 * | dsc_sequence_to_heads() | [batch, sequence / n, heads, head_dim] | [batch, sequence, heads / n, head_dim]
 * | | dsc_heads_to_sequence() | [batch, sequence, heads / n, head_dim] | [batch, sequence / n, heads,
 * head_dim] |
 *
 * Each is the gradient of the other one. Before the attention, queries, keys and values go from the sequence
 * to the heads; after it, its result goes back. Their gradients go the opposite ways. Nothing has to be
 * transposed: memory of dsc_mem_alloc() is read where it lies on one host; elsewhere the library packs both
 * ends, in memory of up to the size of send and recv together; on devices kernels do that in stream order.
 * For the layout [sequence, batch, heads, head_dim] use dsc_tensor_map_forward() with
 * DSC_TENSOR_MAPPING_SEQUENCE_TO_HIDDEN.
 *
 * @param[in] comm the ranks that divide the sequence
 * @param[in] options the sizes of the whole tensor
 * @param[in] send what goes in, row-major
 * @param[out] recv what comes out, row-major; must not overlap send, except that a group of one rank takes
 * recv == send
 * @param[in] dtype a ::dsc_dtype
 * @param[in] stream see collectives.h
 * @param[out] work NULL to block, else the new work object; see collectives.h
 *
 * Collective: yes, all ranks call the same one with the same sizes and parts (DSC_ERR_MISMATCH naming them,
 * before anything is written). Blocking, ownership, failures: see the head of collectives.h. Threads: one at
 * a time per communicator.
 * @return as collectives.h says; DSC_ERR_INVALID_ARG also for a size that the ranks do not divide and for
 * parts with another sum, with both numbers; DSC_ERR_UNSUPPORTED on a device if libdsc was built without
 * kernels; DSC_ERR_STATE if the kernels would have to be loaded during a stream capture
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
 * @param[in] send what goes in, row-major
 * @param[out] recv what comes out, row-major
 * @param[in] dtype a ::dsc_dtype
 * @param[in] stream see collectives.h
 * @param[out] work NULL to block, else the new work object; see collectives.h
 *
 * Collective: yes. Blocking, ownership: as dsc_sequence_to_heads(). Threads: one at a time per communicator.
 * @return as dsc_sequence_to_heads()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_heads_to_sequence(dsc_comm_t* comm, const dsc_sequence_heads_options_t* options,
                                           const void* send, void* recv, dsc_dtype_t dtype, void* stream,
                                           dsc_work_t** work);

/**
 * @brief Makes a ring, for any number of passes one after another.
 *
 * It has a channel of its own, so that its messages wait for no other operation of comm. The first pass in
 * memory of the host, and the first one on the device that comm is bound to, take memory of dsc_mem_alloc()
 * there, for two blocks and three sums of gradients (none in a group of one rank).
 *
 * @param[in] comm the ranks that divide the sequence; rank r sends to rank r + 1, the last one to rank 0
 * @param[in] block_bytes size of the longest block, 1 or more; equal on all ranks
 * @param[in] grad_bytes size of the longest block's gradients; 0: the ring has no passes with gradients.
 * Equal on all ranks
 * @param[out] ring the new ring; NULL on failure
 *
 * Collective: yes. Blocking: until all ranks have called it. Ownership: the caller's, until
 * dsc_ring_destroy(). Threads: one at a time per communicator.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW; DSC_ERR_MISMATCH naming the sizes when they
 * differ between ranks, and comm goes on; DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; DSC_ERR_FORKED; and the failures
 * of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_ring_create(dsc_comm_t* comm, size_t block_bytes, size_t grad_bytes,
                                     dsc_ring_t** ring);

/**
 * @brief Begins a pass, in which each rank gets the block of every rank.
 *
 * All ranks compare the pass first. Then the first block is on its way. A pass may be left early, if all
 * ranks do so after the same step: the next begin waits for what is on its way, and drops it.
 *
 * **On a device** the pass happens in the order of the stream: each message follows what is on the stream
 * when the call that starts it is made, dsc_ring_next() lets the stream wait for the next block and for the
 * sum at the end, and zeros and sums are put there, too. The host waits only for the other ranks here, and in
 * the first pass on devices until the messages are connected. What the caller does with a block belongs on
 * the stream, or the stream has to wait for it before the following call. A pass is behind all earlier ones
 * of the ring, also on another stream. A stream that is captured is refused.
 *
 * @param[in] ring ring
 * @param[in] block this rank's block, for example its keys and then its values; not written
 * @param[in] count elements of this rank's block; 0 is valid
 * @param[in] counts elements of each rank's block, one entry per rank, equal on all ranks; counts[rank] is
 * count. NULL: every block has count elements
 * @param[in] dtype element type of the blocks
 * @param[out] grad where the sum of the gradients of this rank's block is written, count elements of
 * grad_dtype, at the end of the pass; must not overlap block. Not looked at if grad_dtype is 0
 * @param[in] grad_dtype element type of gradients and of their sums: each addition rounds to it, so f32 suits
 * blocks of 16-bit floats; 0: a pass without gradients. A floating type on a device
 * @param[in] stream the stream of a pass on a device, which block and grad are on then; NULL: the default
 * stream. With CUDA's per-thread default stream all calls of a pass come from one thread. In memory of the
 * host it is not looked at. With a count of 0 it says where the pass is: on the device unless it is NULL
 * (cudaStreamLegacy for the default stream)
 *
 * Collective: yes, all ranks on devices or none. Blocking: until all ranks have called it. Ownership: block
 * and grad are none of the ring's own memory, and must stay valid and untouched until dsc_ring_next() has
 * given source -1, the next pass has begun or the ring is destroyed, on a device in the order of the stream;
 * so must the stream. Threads: one at a time per ring.
 * @return DSC_OK; DSC_ERR_INVALID_ARG, also for a block that is larger than the ring's, with both numbers;
 * DSC_ERR_OVERFLOW; DSC_ERR_UNSUPPORTED for a stream where comm is bound to no device, and for gradients on a
 * device that are no floats or that libdsc was built without kernels for; DSC_ERR_STATE if the stream is
 * being captured; DSC_ERR_MISMATCH naming the counts, types and places of ranks that differ, or the steps at
 * which they left the pass before: the ring is revoked and comm goes on; DSC_ERR_NOSPACE or DSC_ERR_BACKEND
 * on all ranks if one has no memory for the first pass; DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; DSC_ERR_FORKED; and
 * the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_ring_begin(dsc_ring_t* ring, const void* block, size_t count, const size_t* counts,
                                    dsc_dtype_t dtype, void* grad, dsc_dtype_t grad_dtype, void* stream);

/**
 * @brief Waits for the next block of the pass and gives it.
 *
 * The first call gives the rank's own block, at once, call i + 1 the block of rank (rank - i) mod n, and call
 * n + 1 the source -1: the pass is over, and the sum of the gradients of this rank's block is in grad of
 * dsc_ring_begin(). The next block is on its way while the caller computes.
 *
 * In a pass with gradients the caller writes to *grad, or adds to it, the gradients of the block that its own
 * queries cause: it is zeroed, and may be left so. The following call adds it to what came from the ranks
 * before. The sum for the block of rank r is taken in the order of ranks r, r + 1, to r - 1.
 *
 * On a device all of that is so in the order of the stream of dsc_ring_begin(), and the call returns without
 * waiting for the device. A failure of a message that comes later is told by the following calls, after the
 * last one by dsc_ring_synchronize().
 *
 * @param[in] ring ring
 * @param[in] timeout_ms milliseconds, 0 or more; -1: until the block is there. Every message has the
 * time-out besides that the communicator had when the ring was made. On a device the host waits only in the
 * first pass, until the messages are connected
 * @param[out] source rank whose block it is; -1: none is left
 * @param[out] block first element of the block, to read only; NULL if source is -1
 * @param[out] count elements of the block; 0 if source is -1
 * @param[out] grad where the block's gradients go, count elements; NULL in a pass without gradients and if
 * source is -1. The argument may be NULL in such a pass
 *
 * Collective: yes, of all ranks in turn. Blocking: until the block is there; on a device until it will be, in
 * the order of the stream. Ownership: block and grad are
 * the ring's, and stay until the following call, of dsc_ring_begin() or of dsc_ring_destroy(). Threads: one
 * at a time per ring.
 * @return DSC_OK; DSC_IN_PROGRESS if the time passed first: nothing was written, and the call can be made
 * again; DSC_ERR_STATE if no pass is open or its stream is being captured; DSC_ERR_INVALID_ARG;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; DSC_ERR_FORKED; and the failures of an operation, after which the ring
 * takes no further pass
 * @since 0.1
 */
DSC_API dsc_result_t dsc_ring_next(dsc_ring_t* ring, int32_t timeout_ms, int32_t* source, const void** block,
                                   size_t* count, void** grad);

/**
 * @brief Waits until the device is done with what the calls before have put on the stream, and says whether a
 * pass has failed.
 *
 * To be asked before the results of the last pass on a device are relied on, since dsc_ring_next() does not
 * wait there.
 *
 * @param[in] ring ring
 * @param[in] timeout_ms milliseconds to wait; -1: the time-out that the communicator had when the ring was
 * made
 *
 * Collective: no. Blocking: until the device is done; in host memory not at all. Threads: one at a time per
 * ring.
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
 * If a pass was not finished, the other ranks get DSC_ERR_REVOKED or DSC_ERR_PEER_LEFT from it, and comm goes
 * on. Collective: no. Blocking: until nothing of this rank moves any more, and on a device until the streams
 * of the passes are done with the ring, for at most twice the time-out: then its memory there is never freed,
 * and the log says so. Threads: any; with a call inside the ring it is released when that call returns.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_ring_destroy(dsc_ring_t* ring);

/**
 * @brief Tells which tokens of a sequence a rank holds.
 *
 * Any count is divided, as evenly as dsc_tensor_map_part() does: DSC_SEQUENCE_ORDER_CONTIGUOUS into one part
 * per rank, DSC_SEQUENCE_ORDER_ZIGZAG into two chunks per rank. The work of all ranks is the same if 2 x
 * ranks divides count.
 *
 * @param[in] order a ::dsc_sequence_order
 * @param[in] count tokens of the sequence
 * @param[in] ranks number of ranks, 1 or more
 * @param[in] rank rank, 0 to ranks - 1
 * @param[out] begins two entries: first tokens of the rank's two ranges, in the order in which it holds them;
 * the second one is empty with DSC_SEQUENCE_ORDER_CONTIGUOUS
 * @param[out] lengths two entries: numbers of tokens of the two ranges
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sequence_ranges(dsc_sequence_order_t order, size_t count, int32_t ranks,
                                         int32_t rank, size_t* begins, size_t* lengths);

/**
 * @brief Tells what a rank computes of a causal attention with the block of one rank.
 *
 * In zig-zag order: with its own block, the diagonal; with that of a lower rank, all queries and the first
 * half of the keys; with that of a higher rank, the second half of the queries and all keys. In contiguous
 * order: the diagonal; everything; nothing.
 *
 * @param[in] order a ::dsc_sequence_order
 * @param[in] count tokens of the sequence
 * @param[in] ranks number of ranks, 1 or more
 * @param[in] rank rank whose queries these are, 0 to ranks - 1
 * @param[in] source rank whose keys these are, 0 to ranks - 1
 * @param[out] work the result; its struct_size must be set
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sequence_causal_range(dsc_sequence_order_t order, size_t count, int32_t ranks,
                                               int32_t rank, int32_t source,
                                               dsc_sequence_causal_range_t* work);

#ifdef __cplusplus
}
#endif

#endif /* DSC_CONTEXT_PARALLEL_H */
