/**
 * @file recovery.h
 * @brief After a failure: agreeing with the ranks that still live, and going on with them.
 *
 * When a rank dies, its communicators are revoked: from then on every operation on them fails on every rank.
 * Some ranks may have finished an operation that failed on others. The calls of this header work all the
 * same. A rank is missing in them when its process has ended, when it has destroyed the communicator, or when
 * its process has not run for stall_timeout_ms. All ranks that get DSC_OK get the same answer, whenever ranks
 * die.
 *
 * A rank that lives and does not come is waited for until the communicator's time-out; DSC_ERR_TIMEOUT then
 * names it, on all ranks that came in time, and the call may be repeated. DSC_ERR_NOMEM concerns only the
 * rank that gets it; the others wait for it as for any rank that does not come.
 *
 * A batch that is open on the communicator (dsc_batch_begin()) is dropped.
 */
#ifndef DSC_RECOVERY_H
#define DSC_RECOVERY_H

#include <dsc/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Combines flags of all ranks that live by bitwise AND; works on a revoked communicator too.
 * @param[in] comm communicator
 * @param[in] flags any bits
 * @param[out] agreed the same value on all ranks that get DSC_OK; unchanged otherwise
 *
 * With all ranks there it is a small all-reduce. A rank that dies during the call may still be counted or
 * not, equally on all. Whom it missed, dsc_comm_missing() says; when it missed somebody, the communicator is
 * revoked afterwards. Operations that are queued are not waited for.
 *
 * Collective: yes, every rank that lives, in the same order as its other calls of this header. Blocking:
 * until all of them came. dsc_comm_abort() of this rank ends it, with DSC_ERR_REVOKED on all. Threads: one at
 * a time per communicator.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_BUSY; DSC_ERR_STATE (finalized);
 * DSC_ERR_TIMEOUT; DSC_ERR_MISMATCH (others called dsc_comm_shrink()); DSC_ERR_REVOKED (a rank that was
 * inside aborted); DSC_ERR_PEER_STALLED (the others have gone on without this rank, which did not run);
 * DSC_ERR_PROTOCOL; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_agree(dsc_comm_t* comm, int32_t flags, int32_t* agreed);

/**
 * @brief Makes a working communicator of the ranks that live, in their old order.
 * @param[in] comm communicator, revoked or not, also one that this function made
 * @param[in] options NULL: defaults; the same on all ranks
 * @param[out] shrunk the new communicator; NULL on failure
 *
 * Ranks that die during the call are left out too. One that dies when it is over makes the new communicator
 * fail like any other: shrink that one then. Without a name in options, what is made of "world" and of its
 * successors is named "world/shrunk", "world/shrunk2" and so on. Memory of dsc_mem_alloc() that was made on
 * comm, or on what comm was made from, moves without copying on the new communicator as before.
 * dsc_finalize() waits for the ranks of the new communicator when it was made from a world that failed.
 *
 * Collective: yes, every rank that lives; a rank that is still inside an operation on comm has to come out of
 * it first, for which a death is enough and dsc_comm_abort() serves otherwise. Blocking: as dsc_comm_agree().
 * Ownership: the new communicator is the caller's, to be given to dsc_comm_destroy(); comm stays the caller's
 * and may be destroyed at once. Threads: one at a time per communicator.
 * @return as dsc_comm_agree(); DSC_ERR_NOSPACE, DSC_ERR_SYSTEM or DSC_ERR_NOMEM of any rank that could not
 * make its part of the new communicator, on all
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_shrink(dsc_comm_t* comm, const dsc_comm_options_t* options,
                                     dsc_comm_t** shrunk);

/**
 * @brief Lists the ranks that the latest dsc_comm_agree() or dsc_comm_shrink() missed.
 * @param[in] comm the communicator that was given to that call
 * @param[out] ranks ranks of comm, in order; may be NULL with capacity 0
 * @param[in] capacity entries of ranks
 * @param[out] needed how many there are; 0 before the first such call
 *
 * After DSC_OK: who takes no part any more. After DSC_ERR_TIMEOUT: who lives and did not come. After another
 * failure: who is to blame for it. It is the same list on all ranks of one answer; a rank
 * that came too late finds itself. Collective: no. Blocking: no. Threads:
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
