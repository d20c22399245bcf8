/**
 * @file work.h
 * @brief Operations that were started and not waited for.
 */
#ifndef DSC_WORK_H
#define DSC_WORK_H

#include <dsc/comm.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Asks whether an operation has completed, without waiting.
 * @param[in] work operation
 * @param[out] completed 1: completed, with success or not (see dsc_work_error_info()); 0: still running
 *
 * In a world without a progress thread it drives operations as dsc_comm_progress() with a time-out of 0 does.
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_work_test(dsc_work_t* work, int32_t* completed);

/**
 * @brief Waits for an operation on host memory; makes a stream wait for one on a GPU.
 * @param[in] work operation
 * @param[in] timeout_ms milliseconds to wait; 0: not at all; -1: until the operation ends, which its own
 * deadline ensures
 * @param[in] stream of the device: it waits, and the call returns as soon as the operation is on its own
 * stream. NULL: the device's default stream. Ignored for an operation on host memory
 *
 * A wait that times out does not end the operation. A second wait repeats the result. Collective: no.
 * Blocking: up to timeout_ms. Threads: any, several at once.
 * @return DSC_OK; DSC_IN_PROGRESS when timeout_ms passed; the operation's failure; DSC_ERR_BAD_HANDLE;
 * DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_work_wait(dsc_work_t* work, int32_t timeout_ms, void* stream);

/**
 * @brief Waits on the host until an operation is complete and nobody touches its buffers any more.
 * @param[in] work operation
 * @param[in] timeout_ms as in dsc_work_wait()
 *
 * Collective: no. Blocking: up to timeout_ms. Threads: any, several at once.
 * @return as dsc_work_wait(); DSC_ERR_STATE for an operation that was captured into a CUDA graph
 * @since 0.1
 */
DSC_API dsc_result_t dsc_work_synchronize(dsc_work_t* work, int32_t timeout_ms);

/**
 * @brief Tells how an operation ended.
 * @param[in] work operation
 * @param[in,out] info struct_size must be set; code is DSC_OK after success and DSC_IN_PROGRESS while it runs
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_work_error_info(const dsc_work_t* work, dsc_error_info_t* info);

/**
 * @brief Gives a descriptor that becomes readable when the operation completes, for poll() and event loops.
 * @param[in] work operation
 * @param[out] descriptor the same one on every call
 *
 * Collective: no. Blocking: no. Ownership: the work's; closed by dsc_work_destroy(); only to be polled.
 * Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_SYSTEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_work_eventfd(dsc_work_t* work, int32_t* descriptor);

/**
 * @brief Releases a work object. An operation that still runs goes on: its buffers must live until it
 * completes.
 * @param[in] work operation; NULL does nothing
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_work_destroy(dsc_work_t* work);

/**
 * @brief Moves queued operations on from the calling thread, as the library's progress thread would.
 *
 * For programs with an event loop of their own that turned that thread off (dsc_init_options_t,
 * progress_thread); with it on, the call is allowed and not needed. Call it from the loop, now and then with
 * timeout_ms 0, as long as it gives DSC_IN_PROGRESS; or with a time-out where the loop has nothing else to
 * wait for. How operations end is told by their work objects. Descriptors of dsc_work_eventfd() become
 * readable during the call that completes them.
 *
 * @param[in] comm the operations of this rank in all groups of this communicator's world; NULL: all
 * operations of this process
 * @param[in] timeout_ms milliseconds to wait for an operation to complete; 0: one round and no wait; -1:
 * until one completes, which its own deadline ensures
 *
 * Collective: no. Blocking: until an operation completed, none is left, or timeout_ms passed; one round may
 * copy up to 512 KiB per group and direction of messages. Threads: any, several at once, also while another
 * thread is inside a call on comm.
 * @return DSC_OK when no operation is left; DSC_IN_PROGRESS when some are: call again; DSC_ERR_BAD_HANDLE;
 * DSC_ERR_INVALID_ARG; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_progress(dsc_comm_t* comm, int32_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif /* DSC_WORK_H */
