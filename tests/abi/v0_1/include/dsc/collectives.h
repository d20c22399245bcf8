/**
 * @file collectives.h
 * @brief Operations on all ranks of a communicator, and point-to-point messages.
 *
 * **Order.** All ranks of a communicator call its collectives in the same order; messages between two ranks
 * have an order of their own per direction.
 *
 * **Blocking and work.** With work NULL the call returns when this rank's buffers are final and no other rank
 * will touch them. Otherwise it returns at once and *work stands for the operation (see work.h). The
 * arguments are checked before anything happens; an argument error has no effect on other ranks.
 *
 * **Stream.** NULL for memory of the host.
 *
 * **Buffers** belong to the caller, have any alignment, and must stay valid and untouched until completion.
 * Counts are elements; a count of 0 takes part in the order and touches no memory (pointers may be NULL).
 * Memory from dsc_mem_alloc() is moved without copying. Buffers may be equal where it says "in place" and
 * otherwise must not overlap (DSC_ERR_INVALID_ARG).
 *
 * **Failures.** DSC_ERR_INVALID_ARG, DSC_ERR_BAD_HANDLE, DSC_ERR_BUSY, DSC_ERR_UNSUPPORTED, DSC_ERR_OVERFLOW,
 * DSC_ERR_FORKED, DSC_ERR_REENTRANT, DSC_ERR_STATE: nothing happened. DSC_ERR_TIMEOUT, DSC_ERR_PEER_DEAD,
 * DSC_ERR_PEER_STALLED, DSC_ERR_PEER_LEFT, DSC_ERR_MISMATCH: the communicator is revoked on all ranks and the
 * contents of the output are unspecified (not written at all for DSC_ERR_MISMATCH). DSC_ERR_REVOKED: it was
 * revoked before.
 *
 * **Threads.** One thread at a time per communicator (DSC_ERR_BUSY otherwise); different communicators at
 * once.
 *
 * **Results** are the same bits on all ranks, in every run, whatever the size, the alignment or the
 * algorithm: inputs are combined in rank order; 16-bit floats accumulate in f32 and are rounded once to
 * nearest even.
 */
#ifndef DSC_COLLECTIVES_H
#define DSC_COLLECTIVES_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Combines count elements of all ranks; every rank gets the result.
 * @param[in] comm communicator
 * @param[in] send count elements
 * @param[out] recv count elements; in place: recv == send
 * @param[in] count elements, 0 or more
 * @param[in] dtype element type
 * @param[in] op how to combine; DSC_OP_AVG needs a floating-point type (DSC_ERR_UNSUPPORTED)
 * @param[in] stream NULL for host memory
 * @param[out] work NULL: blocking
 *
 * Collective: yes. Blocking, ownership, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_all_reduce(dsc_comm_t* comm, const void* send, void* recv, size_t count,
                                    dsc_dtype_t dtype, dsc_op_t op, void* stream, dsc_work_t** work);

/**
 * @brief Copies the root's elements to all ranks.
 * @param[in] comm communicator
 * @param[in] send count elements on the root; ignored elsewhere
 * @param[out] recv count elements; in place on the root: recv == send
 * @param[in] count elements, 0 or more
 * @param[in] dtype element type
 * @param[in] root rank whose elements are copied
 * @param[in] stream NULL for host memory
 * @param[out] work NULL: blocking
 *
 * Collective: yes. Blocking, ownership, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_broadcast(dsc_comm_t* comm, const void* send, void* recv, size_t count,
                                   dsc_dtype_t dtype, int32_t root, void* stream, dsc_work_t** work);

/**
 * @brief Gathers count elements of every rank, in rank order, on all ranks.
 * @param[in] comm communicator
 * @param[in] send count elements
 * @param[out] recv size x count elements; in place: send == recv + rank x count
 * @param[in] count elements per rank, 0 or more
 * @param[in] dtype element type
 * @param[in] stream NULL for host memory
 * @param[out] work NULL: blocking
 *
 * Collective: yes. Blocking, ownership, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_all_gather(dsc_comm_t* comm, const void* send, void* recv, size_t count,
                                    dsc_dtype_t dtype, void* stream, dsc_work_t** work);

/**
 * @brief Combines size x count elements of all ranks; rank r gets part r.
 * @param[in] comm communicator
 * @param[in] send size x count elements
 * @param[out] recv count elements; in place: recv == send + rank x count
 * @param[in] count elements per rank, 0 or more
 * @param[in] dtype element type
 * @param[in] op how to combine, as in dsc_all_reduce()
 * @param[in] stream NULL for host memory
 * @param[out] work NULL: blocking
 *
 * Collective: yes. Blocking, ownership, threads, failures: see the head of this file. In place, the other
 * parts of send are left as they are.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_reduce_scatter(dsc_comm_t* comm, const void* send, void* recv, size_t count,
                                        dsc_dtype_t dtype, dsc_op_t op, void* stream, dsc_work_t** work);

/**
 * @brief Waits until all ranks have called it.
 * @param[in] comm communicator
 * @param[in] stream NULL for the host
 * @param[out] work NULL: blocking
 *
 * Collective: yes. Blocking, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_barrier(dsc_comm_t* comm, void* stream, dsc_work_t** work);

/**
 * @brief Sends count elements to one rank. It completes when the receiver has them (rendezvous), whatever the
 * size.
 * @param[in] comm communicator
 * @param[in] send count elements
 * @param[in] count elements, 0 or more
 * @param[in] dtype element type
 * @param[in] peer the receiving rank; not this rank
 * @param[in] stream NULL for host memory
 * @param[out] work NULL: blocking
 *
 * The n-th send to a rank meets that rank's n-th receive from this one; another count or type is
 * DSC_ERR_MISMATCH at both ends. Collective: no. Blocking, ownership, threads, failures: see the head of this
 * file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_send(dsc_comm_t* comm, const void* send, size_t count, dsc_dtype_t dtype,
                              int32_t peer, void* stream, dsc_work_t** work);

/**
 * @brief Receives count elements from one rank.
 * @param[in] comm communicator
 * @param[out] recv count elements
 * @param[in] count elements, 0 or more
 * @param[in] dtype element type
 * @param[in] peer the sending rank; not this rank
 * @param[in] stream NULL for host memory
 * @param[out] work NULL: blocking
 *
 * See dsc_send(). Collective: no. Blocking, ownership, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_recv(dsc_comm_t* comm, void* recv, size_t count, dsc_dtype_t dtype, int32_t peer,
                              void* stream, dsc_work_t** work);

#ifdef __cplusplus
}
#endif

#endif /* DSC_COLLECTIVES_H */
