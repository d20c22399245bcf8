/**
 * @file recovery.h
 * @brief Recovery after a failure: the surviving ranks agree and continue together.
 *
 * When a rank dies, its communicators are revoked: from then on every operation on them fails on every rank.
 * Some ranks may have finished an operation that failed on others. The calls of this header still work. They
 * treat a rank as missing when its process has ended, when it has destroyed the communicator, or when its
 * process has not run for stall_timeout_ms. All ranks that get DSC_OK get the same answer, whenever ranks
 * die.
 *
 * The calls wait for a surviving rank that does not make the call, until the communicator's time-out.
 * DSC_ERR_TIMEOUT then names this rank on all ranks that called in time, and the call may be repeated.
 * DSC_ERR_NOMEM concerns only the rank that gets it; the others wait for this rank as for any other.
 *
 * A batch that is open on the communicator (dsc_batch_begin()) is discarded.
 */
#ifndef DSC_RECOVERY_H
#define DSC_RECOVERY_H

#include <dsc/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Combines the flags of all surviving ranks with bitwise AND, also on a revoked communicator.
 * @param[in] comm communicator
 * @param[in] flags any bits
 * @param[out] agreed the same value on all ranks that get DSC_OK; unchanged otherwise
 *
 * If no rank is missing, it is a small all-reduce. A rank that dies during the call may be counted or not, in
 * the same way on all ranks. dsc_comm_missing() lists the missing ranks; if ranks are missing, the
 * communicator is revoked afterwards. The call does not wait for queued operations.
 *
 * Collective: yes, every surviving rank, in the same order as its other calls of this header. Blocking: until
 * all of them have called it. dsc_comm_abort() on a rank in the call ends it, with DSC_ERR_REVOKED on all
 * ranks. Threads: one at a time per communicator.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_BUSY; DSC_ERR_STATE (finalized);
 * DSC_ERR_TIMEOUT; DSC_ERR_MISMATCH (others called dsc_comm_shrink()); DSC_ERR_REVOKED (a rank in the call
 * has aborted); DSC_ERR_PEER_STALLED (the others have continued without this rank, because it did not run);
 * DSC_ERR_PROTOCOL; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_agree(dsc_comm_t* comm, int32_t flags, int32_t* agreed);

/**
 * @brief Creates a working communicator of the surviving ranks, in their old order.
 * @param[in] comm communicator, revoked or not, also one that this function created
 * @param[in] options NULL: defaults; the same on all ranks
 * @param[out] shrunk the new communicator; NULL on failure
 *
 * Ranks that die during the call are left out too. If a rank dies later, the new communicator fails like any
 * other; then shrink the new one. Without a name in options, the successors of "world" are named
 * "world/shrunk", "world/shrunk2" and so on. Memory that dsc_mem_alloc() allocated for comm, or for the
 * communicators from which comm was made, is still moved without copying. If comm is a world that failed,
 * dsc_finalize() waits for the ranks of the new communicator.
 *
 * Collective: yes, every surviving rank. A rank that is inside an operation on comm must return from it
 * first; the death of a rank ends the operation, otherwise call dsc_comm_abort(). Blocking: as
 * dsc_comm_agree(). Ownership: the caller releases both communicators with dsc_comm_destroy(); comm may be
 * destroyed at once. Threads: one at a time per communicator.
 * @return as dsc_comm_agree(); DSC_ERR_NOSPACE, DSC_ERR_SYSTEM or DSC_ERR_NOMEM on all ranks if a rank could
 * not create its part of the new communicator
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_shrink(dsc_comm_t* comm, const dsc_comm_options_t* options,
                                     dsc_comm_t** shrunk);

/**
 * @brief Lists the ranks that were missing in the last dsc_comm_agree() or dsc_comm_shrink().
 * @param[in] comm the communicator that was passed to that call
 * @param[out] ranks ranks of comm, in order; may be NULL with capacity 0
 * @param[in] capacity entries of ranks
 * @param[out] needed number of these ranks; 0 before the first such call
 *
 * After DSC_OK it lists the ranks that no longer take part; after DSC_ERR_TIMEOUT, the surviving ranks that
 * did not make the call; after another failure, the ranks at fault. It is the same list on all ranks with the
 * same answer; a rank that called too late finds itself in the list. Collective: no. Blocking: no. Threads:
 * any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_missing(const dsc_comm_t* comm, int32_t* ranks, size_t capacity,
                                      size_t* needed);

#ifdef __cplusplus
}
#endif

#endif /* DSC_RECOVERY_H */
