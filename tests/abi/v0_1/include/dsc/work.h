/**
 * @file work.h
 * @brief Operations that were started without waiting for them.
 */
#ifndef DSC_WORK_H
#define DSC_WORK_H

#include <dsc/comm.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Returns whether an operation has completed, without waiting.
 * @param[in] work operation
 * @param[out] completed 1: completed, with success or not (see dsc_work_error_info()); 0: still running
 *
 * In a world without a progress thread it also drives operations, as dsc_comm_progress() does with a time-out
 * of 0. Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_work_test(dsc_work_t* work, int32_t* completed);

/**
 * @brief Waits for an operation on host memory; makes a stream wait for one on a GPU.
 * @param[in] work operation
 * @param[in] timeout_ms milliseconds to wait; 0: do not wait; -1: until the operation ends, at the latest at
 * its own deadline
 * @param[in] stream the device stream that waits; the call returns as soon as the operation is queued on its
 * own stream. NULL: the device's default stream. Ignored for an operation on host memory
 *
 * A wait that times out does not end the operation. A second wait repeats the result. Collective: no.
 * Blocking: up to timeout_ms. Threads: any, several at once.
 * @return DSC_OK; DSC_IN_PROGRESS when timeout_ms passed; the operation's failure; DSC_ERR_BAD_HANDLE;
 * DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_work_wait(dsc_work_t* work, int32_t timeout_ms, void* stream);

/**
 * @brief Waits on the host until an operation is complete and its buffers are no longer used.
 * @param[in] work operation
 * @param[in] timeout_ms as in dsc_work_wait()
 *
 * Collective: no. Blocking: up to timeout_ms. Threads: any, several at once.
 * @return as dsc_work_wait(); DSC_ERR_STATE for an operation that was captured into a CUDA graph
 * @since 0.1
 */
DSC_API dsc_result_t dsc_work_synchronize(dsc_work_t* work, int32_t timeout_ms);

/**
 * @brief Returns how an operation ended.
 * @param[in] work operation
 * @param[in,out] info struct_size must be set; code is DSC_OK after success and DSC_IN_PROGRESS while it runs
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_work_error_info(const dsc_work_t* work, dsc_error_info_t* info);

/**
 * @brief Returns a descriptor that becomes readable when the operation completes, for poll() and event loops.
 * @param[in] work operation
 * @param[out] descriptor the same one on every call
 *
 * Collective: no. Blocking: no. Ownership: the work's; dsc_work_destroy() closes it; only poll it. Threads:
 * any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_SYSTEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_work_eventfd(dsc_work_t* work, int32_t* descriptor);

/**
 * @brief Releases a work object. A running operation continues: its buffers must stay valid until it
 * completes.
 * @param[in] work operation; NULL does nothing
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_work_destroy(dsc_work_t* work);

/**
 * @brief Drives started operations from the calling thread, as the library's progress thread would.
 *
 * For programs with their own event loop that have turned that thread off (dsc_init_options_t,
 * progress_thread). With the thread on, the call is allowed but not needed. Call it regularly from the loop
 * with timeout_ms 0 as long as it returns DSC_IN_PROGRESS, or with a time-out if the loop has nothing else to
 * wait for. The work objects report how operations ended. Descriptors of dsc_work_eventfd() become readable
 * during the call that completes the operation.
 *
 * @param[in] comm any communicator of a world: drives the operations of this rank in all groups of that
 * world; NULL: drives the operations of all worlds of this process
 * @param[in] timeout_ms milliseconds to wait for an operation to complete; 0: one round without waiting; -1:
 * until one completes, at the latest at its own deadline
 *
 * Collective: no. Blocking: until an operation has completed, none is left, or timeout_ms has passed; one
 * round may copy up to 512 KiB of messages per group and direction. Threads: any, several at once, also while
 * another thread is inside a call on comm.
 * @return DSC_OK when no operation is left; DSC_IN_PROGRESS when some are left: call again;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_INVALID_ARG; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_comm_progress(dsc_comm_t* comm, int32_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif /* DSC_WORK_H */
