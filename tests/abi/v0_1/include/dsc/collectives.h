/**
 * @file collectives.h
 * @brief Operations on all ranks of a communicator, and point-to-point messages.
 *
 * **Sizes.** In the descriptions, size is the number of ranks of the communicator, and rank is the caller's
 * rank in it.
 *
 * **Order.** All ranks of a communicator call its collectives in the same order; messages between two ranks
 * are ordered separately, per direction.
 *
 * **Blocking and work.** If work is NULL, a call on host memory returns when this rank's buffers are final
 * and no other rank will touch them; a call on device memory only queues the operation on the stream, as NCCL
 * does. If work is not NULL, the call returns at once, and *work is a new work object for the operation (see
 * work.h). The caller releases it with dsc_work_destroy(); it stays NULL on failure. Arguments are checked
 * before anything else happens, so an argument error has no effect on other ranks.
 *
 * **Devices.** In a communicator that is bound to a GPU (dsc_comm_device()), the kind of the buffers' memory
 * decides who moves the data: NCCL for memory of that device and for managed memory, the host engine for all
 * other memory, including pinned memory. Buffers of both kinds in one call, or of another device, are
 * DSC_ERR_INVALID_ARG. Ranks that pass different kinds to one operation get DSC_ERR_MISMATCH. In a call
 * without buffers (a barrier, empty blocks), a stream that is not NULL selects the device.
 *
 * The stream is a cudaStream_t or CUstream; NULL is the default stream. It matters only for device memory. If
 * work is NULL, the operation is queued on this stream, and the call returns without waiting for the device.
 * Otherwise the operation runs on a separate stream, after the work already queued on the given stream, and
 * dsc_work_wait() makes another stream wait for it. For host memory the stream is ignored; in a communicator
 * without a device, a stream that is not NULL is DSC_ERR_UNSUPPORTED. The first operations may block until
 * NCCL has connected the ranks; after that all calls may be captured into a CUDA graph.
 *
 * Each call on device memory is compared with the calls of the other ranks of this host: a rank that sees a
 * difference starts nothing, and the communicator is revoked. Each pair of ranks has one connection per
 * direction for messages, made at the first message, so that messages do not wait for other operations. Not
 * supported for device memory (DSC_ERR_UNSUPPORTED, with the reason): bitwise operations except on bool,
 * operations of dsc_op_create_user(), and 8-bit floats where NCCL or the device cannot sum them.
 *
 * **Buffers** belong to the caller, may have any alignment, and must stay valid and untouched until
 * completion. Counts are numbers of elements. A call with count 0 still takes its place in the order but
 * touches no memory (pointers may be NULL). Memory from dsc_mem_alloc() is moved without copying. Send and
 * receive buffers may overlap only as described by "in place"; otherwise overlap is DSC_ERR_INVALID_ARG.
 *
 * **Failures.** DSC_ERR_INVALID_ARG, DSC_ERR_BAD_HANDLE, DSC_ERR_BUSY, DSC_ERR_UNSUPPORTED, DSC_ERR_OVERFLOW,
 * DSC_ERR_FORKED, DSC_ERR_REENTRANT, DSC_ERR_STATE: nothing happened. DSC_ERR_TIMEOUT, DSC_ERR_PEER_DEAD,
 * DSC_ERR_PEER_STALLED, DSC_ERR_PEER_LEFT, DSC_ERR_MISMATCH, DSC_ERR_CALLBACK (a function of op.h failed),
 * DSC_ERR_PROTOCOL (a rank wrote invalid data into shared memory), DSC_ERR_SYSTEM (the kernel did not copy
 * between buffers of two ranks: one is not mapped): the communicator is revoked on all ranks, and the
 * contents of the output are unspecified (for DSC_ERR_MISMATCH it is not written). DSC_ERR_NOMEM: if
 * memory ran out during the operation, the communicator is revoked too, and dsc_comm_error_info() says so;
 * otherwise nothing happened. DSC_ERR_NONFINITE: see dsc_comm_set_nonfinite_check(); the communicator keeps
 * working. DSC_ERR_REVOKED: the communicator was revoked before, or another rank failed for a reason of its
 * own, such as DSC_ERR_NOMEM; the message has the cause.
 *
 * **Threads.** One at a time per communicator (DSC_ERR_BUSY otherwise); different communicators may be used
 * at the same time.
 *
 * **Results** in host memory have the same bits on all ranks and in every run, whatever the size, the
 * alignment or the algorithm. Inputs are combined in rank order; 8-bit and 16-bit floats accumulate in f32
 * and are rounded once to nearest even. On devices NCCL chooses the order.
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
 * @param[in] send [count] elements
 * @param[out] recv [count] elements; in place: recv == send
 * @param[in] count elements, 0 or more
 * @param[in] dtype element type
 * @param[in] op how to combine; DSC_OP_AVG needs a floating-point type (DSC_ERR_UNSUPPORTED)
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object, see the head of this file; may be NULL: none
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
 * @param[in] send [count] elements on the root; may be NULL on other ranks
 * @param[out] recv [count] elements; in place on the root: recv == send
 * @param[in] count elements, 0 or more
 * @param[in] dtype element type
 * @param[in] root rank whose elements are copied
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object, see the head of this file; may be NULL: none
 *
 * Collective: yes. Blocking, ownership, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_broadcast(dsc_comm_t* comm, const void* send, void* recv, size_t count,
                                   dsc_dtype_t dtype, int32_t root, void* stream, dsc_work_t** work);

/**
 * @brief Copies type and shape of the root's array to all ranks. They can then allocate it and receive its
 * elements with dsc_broadcast().
 * @param[in] comm communicator
 * @param[in,out] dtype element type; read on the root, written elsewhere
 * @param[in,out] shape [max(capacity, ndim)] sizes, each 0 or more, whose product fits the address space. On
 * the root *ndim sizes are read, whatever the capacity; elsewhere at most capacity are written. May be NULL
 * with capacity 0 except on the root
 * @param[in] capacity entries of shape on the ranks that receive it; ignored on the root
 * @param[in,out] ndim number of sizes, at most 32; read on the root, written elsewhere
 * @param[in] root rank whose type and shape are copied
 *
 * With capacity 0, a rank other than the root gets only the type and the number of sizes, and DSC_OK. The
 * operation is then complete, so all ranks must call it again to get the sizes. 32 entries are always enough.
 *
 * Collective: yes. Blocking: until the shape has arrived; not allowed in a batch (DSC_ERR_STATE). Ownership,
 * threads, failures: see the head of this file.
 * @return DSC_OK or a failure; DSC_TRUNCATED if capacity is less than *ndim, but not 0: the operation is
 * complete on all ranks, and the communicator keeps working
 * @since 0.1
 */
DSC_API dsc_result_t dsc_broadcast_shape(dsc_comm_t* comm, dsc_dtype_t* dtype, int64_t* shape,
                                         size_t capacity, size_t* ndim, int32_t root);

/**
 * @brief Gathers count elements of every rank, in rank order, on all ranks.
 * @param[in] comm communicator
 * @param[in] send [count] elements
 * @param[out] recv [size * count] elements; in place: send == recv + rank x count
 * @param[in] count elements per rank, 0 or more
 * @param[in] dtype element type
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object, see the head of this file; may be NULL: none
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
 * @param[in] send [size * count] elements
 * @param[out] recv [count] elements; in place: recv == send + rank x count
 * @param[in] count elements per rank, 0 or more
 * @param[in] dtype element type
 * @param[in] op how to combine, as in dsc_all_reduce()
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object, see the head of this file; may be NULL: none
 *
 * Collective: yes. Blocking, ownership, threads, failures: see the head of this file. In place, the other
 * parts of send are not changed.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_reduce_scatter(dsc_comm_t* comm, const void* send, void* recv, size_t count,
                                        dsc_dtype_t dtype, dsc_op_t op, void* stream, dsc_work_t** work);

/**
 * @brief Combines count elements of all ranks; the root gets the result.
 * @param[in] comm communicator
 * @param[in] send [count] elements
 * @param[out] recv [count] elements on the root; may be NULL on other ranks. In place on the root: recv
 * == send
 * @param[in] count elements, 0 or more
 * @param[in] dtype element type
 * @param[in] op how to combine, as in dsc_all_reduce()
 * @param[in] root rank that gets the result
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object, see the head of this file; may be NULL: none
 *
 * Collective: yes. Blocking, ownership, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_reduce(dsc_comm_t* comm, const void* send, void* recv, size_t count,
                                dsc_dtype_t dtype, dsc_op_t op, int32_t root, void* stream,
                                dsc_work_t** work);

/**
 * @brief Gathers count elements of every rank, in rank order, on the root.
 * @param[in] comm communicator
 * @param[in] send [count] elements
 * @param[out] recv [size * count] elements on the root; may be NULL on other ranks. In place on
 * the root: send == recv + root x count
 * @param[in] count elements per rank, 0 or more
 * @param[in] dtype element type
 * @param[in] root rank that gets them
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object, see the head of this file; may be NULL: none
 *
 * Collective: yes. Blocking, ownership, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_gather(dsc_comm_t* comm, const void* send, void* recv, size_t count,
                                dsc_dtype_t dtype, int32_t root, void* stream, dsc_work_t** work);

/**
 * @brief Sends part r of the root's size x count elements to rank r.
 * @param[in] comm communicator
 * @param[in] send [size * count] elements on the root; may be NULL on other ranks
 * @param[out] recv [count] elements. In place on the root: recv == send + root x count
 * @param[in] count elements per rank, 0 or more
 * @param[in] dtype element type
 * @param[in] root rank whose elements are sent
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object, see the head of this file; may be NULL: none
 *
 * Collective: yes. Blocking, ownership, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_scatter(dsc_comm_t* comm, const void* send, void* recv, size_t count,
                                 dsc_dtype_t dtype, int32_t root, void* stream, dsc_work_t** work);

/**
 * @brief Sends part r of every rank's elements to rank r, which gets them in rank order.
 * @param[in] comm communicator
 * @param[in] send [size * count] elements
 * @param[out] recv [size * count] elements; in place: recv == send
 * @param[in] count elements per pair of ranks, 0 or more
 * @param[in] dtype element type
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object, see the head of this file; may be NULL: none
 *
 * Collective: yes. Blocking, ownership, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_all_to_all(dsc_comm_t* comm, const void* send, void* recv, size_t count,
                                    dsc_dtype_t dtype, void* stream, dsc_work_t** work);

/**
 * @brief Gathers elements of every rank, in rank order, on all ranks; the number of elements may differ
 * between ranks.
 * @param[in] comm communicator
 * @param[in] send [counts[rank]] elements
 * @param[out] recv [sum(counts)] the elements of all ranks one after another; in place: send is this rank's
 * part of recv
 * @param[in] counts [size] numbers of elements, one per rank, 0 or more each; the same on all ranks. Read
 * before the call returns
 * @param[in] dtype element type
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object, see the head of this file; may be NULL: none
 *
 * Collective: yes. Blocking, ownership, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_all_gather_v(dsc_comm_t* comm, const void* send, void* recv, const size_t* counts,
                                      dsc_dtype_t dtype, void* stream, dsc_work_t** work);

/**
 * @brief Combines the elements of all ranks; rank r gets part r, which has counts[r] elements.
 * @param[in] comm communicator
 * @param[in] send [sum(counts)] elements
 * @param[out] recv [counts[rank]] elements; in place: recv is this rank's part of send
 * @param[in] counts [size] numbers of elements, one per rank, 0 or more each; the same on all ranks. Read
 * before the call returns
 * @param[in] dtype element type
 * @param[in] op how to combine, as in dsc_all_reduce()
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object, see the head of this file; may be NULL: none
 *
 * In place, the other parts of send are not changed.
 *
 * Collective: yes. Blocking, ownership, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_reduce_scatter_v(dsc_comm_t* comm, const void* send, void* recv,
                                          const size_t* counts, dsc_dtype_t dtype, dsc_op_t op, void* stream,
                                          dsc_work_t** work);

/**
 * @brief Sends a block of elements to every rank and receives one from every rank; the lengths may all
 * differ.
 * @param[in] comm communicator
 * @param[in] send [sum(send_counts)] the blocks for ranks 0, 1, ... one after another
 * @param[in] send_counts [size] numbers of elements, one per rank, 0 or more each. Read before the call
 * returns
 * @param[out] recv [sum(recv_counts)] the blocks of ranks 0, 1, ... one after another; must not overlap send
 * @param[in] recv_counts [size] numbers of elements, one per rank: recv_counts[r] must equal the send_counts
 * entry of rank r for this rank, otherwise all ranks get DSC_ERR_MISMATCH. Read before the call returns
 * @param[in] dtype element type
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object, see the head of this file; may be NULL: none
 *
 * Collective: yes. Blocking, ownership, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_all_to_all_v(dsc_comm_t* comm, const void* send, const size_t* send_counts,
                                      void* recv, const size_t* recv_counts, dsc_dtype_t dtype, void* stream,
                                      dsc_work_t** work);

/**
 * @brief Waits until all ranks have called it.
 * @param[in] comm communicator
 * @param[in] stream NULL: the host waits; otherwise work queued later on this device stream waits
 * @param[out] work a new work object, see the head of this file; may be NULL: none
 *
 * Collective: yes. Blocking, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_barrier(dsc_comm_t* comm, void* stream, dsc_work_t** work);

/**
 * @brief Waits until all ranks have called it, with its own time-out; the error names every missing rank.
 * @param[in] comm communicator
 * @param[in] timeout_ms milliseconds, 1 or more; use the same value on all ranks
 *
 * Use it to find missing ranks, before a long phase or in a debugger. The text of DSC_ERR_TIMEOUT and
 * dsc_comm_error_info() list the missing ranks and what each did last. The communicator is revoked, as after
 * every time-out. Collective: yes. Blocking: until all ranks have called it, at most timeout_ms. Threads,
 * failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_monitored_barrier(dsc_comm_t* comm, int32_t timeout_ms);

/**
 * @brief Sends count elements to one rank. It completes when the receiver has made the matching call and send
 * may be written again (rendezvous), whatever the size.
 * @param[in] comm communicator
 * @param[in] send [count] elements
 * @param[in] count elements, 0 or more
 * @param[in] dtype element type
 * @param[in] peer the receiving rank; not this rank
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object, see the head of this file; may be NULL: none
 *
 * The n-th send to a rank matches that rank's n-th receive from this one; a different count or type is
 * DSC_ERR_MISMATCH on both ranks. Collective: no. Blocking, ownership, threads, failures: see the head of
 * this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_send(dsc_comm_t* comm, const void* send, size_t count, dsc_dtype_t dtype,
                              int32_t peer, void* stream, dsc_work_t** work);

/**
 * @brief Receives count elements from one rank.
 * @param[in] comm communicator
 * @param[out] recv [count] elements
 * @param[in] count elements, 0 or more
 * @param[in] dtype element type
 * @param[in] peer the sending rank; not this rank
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object, see the head of this file; may be NULL: none
 *
 * See dsc_send(). Collective: no. Blocking, ownership, threads, failures: see the head of this file.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_recv(dsc_comm_t* comm, void* recv, size_t count, dsc_dtype_t dtype, int32_t peer,
                              void* stream, dsc_work_t** work);

/**
 * @brief Opens a batch: operations are only recorded until dsc_batch_end(); their work must be NULL.
 * @param[in] comm communicator
 *
 * A batch is what NCCL calls a group (ncclGroupStart()). Use it for messages that would otherwise wait for
 * each other, or to get one work object instead of many. Between the two calls comm accepts only operations
 * of this file (DSC_ERR_STATE for others, and for a second batch); the calls of recovery.h discard the batch.
 * Arguments of operations are checked at once; a refused operation is not in the batch. The batch belongs to
 * the communicator, not to the thread. Collective: no; ranks may batch differently, as long as the order of
 * collectives is the same; collectives on devices must be batched in the same way on all ranks. Blocking: no.
 * Threads: one at a time per communicator.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; DSC_ERR_STATE; DSC_ERR_NOMEM; DSC_ERR_REENTRANT;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_batch_begin(dsc_comm_t* comm);

/**
 * @brief Starts the operations of a batch, in the order of their calls, without waiting in between.
 * @param[in] comm communicator
 * @param[in] stream for device memory, NULL: the default stream; ignored for host memory
 * @param[out] work a new work object for all operations; it reports the first failure among them. May be
 * NULL: none, and the call blocks as each operation would
 *
 * The batch is closed, except after an argument error. Collective: as its operations. Blocking, ownership,
 * threads, failures: see the head of this file. DSC_ERR_STATE: no batch is open. If memory for starting an
 * operation runs out, the communicator is revoked.
 * @return DSC_OK or a failure
 * @since 0.1
 */
DSC_API dsc_result_t dsc_batch_end(dsc_comm_t* comm, void* stream, dsc_work_t** work);

#ifdef __cplusplus
}
#endif

#endif /* DSC_COLLECTIVES_H */
