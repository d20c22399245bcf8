/**
 * @file trace.h
 * @brief The flight recorder: the last operations of every group and their states.
 *
 * Each group always records its last 2,000 operations. DSC_TRACE_BUFFER_SIZE sets another number; 0 turns
 * recording off. A trace is JSON with the field names of PyTorch's flight recorder; docs/tracing.md describes
 * it.
 *
 * If the environment variable DSC_TRACE_DIR is set when the world is created, every rank automatically writes
 * its trace to DSC_TRACE_DIR/dsc_trace_rank_R.json (R: the rank) when one of its groups fails, even if it
 * makes no call. The thread that writes it also delivers log records, so a slow log callback delays the file.
 */
#ifndef DSC_TRACE_H
#define DSC_TRACE_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Writes this rank's trace of all groups of the communicator's world to a file.
 * @param[in] comm communicator; may have failed, and another thread may be inside a call on it
 * @param[in] path the file, which is replaced as a whole; a missing folder is created. NULL:
 * DSC_TRACE_DIR/dsc_trace_rank_R.json, where R is the rank in the world
 *
 * The file is readable by its owner only (0600). Collective: no. Blocking: only for the file system. Threads:
 * any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG when path is NULL and DSC_TRACE_DIR was not set when the world was
 * created, when path is empty, or when it is a link, a device, a FIFO or a folder, which are never replaced;
 * DSC_ERR_SYSTEM when the file cannot be written; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED;
 * DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_trace_dump(const dsc_comm_t* comm, const char* path);

/**
 * @brief Writes this rank's trace of all groups of the communicator's world as JSON text.
 * @param[in] comm communicator; may have failed, and another thread may be inside a call on it
 * @param[out] text the trace; may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included; the next trace may be longer
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED;
 * DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_trace_json(const dsc_comm_t* comm, char* text, size_t capacity, size_t* needed);

/**
 * @brief Requests the trace files of all worlds of this process, in DSC_TRACE_DIR. For signal handlers.
 *
 * A library thread writes them soon, even if all other threads are stuck; only a slow log callback delays it.
 * Async-signal-safe.
 *
 * Collective: no. Blocking: no. Threads: any, and signal handlers.
 * @return DSC_OK when the request was made; DSC_ERR_STATE when no world of this process was created with
 * DSC_TRACE_DIR; DSC_ERR_FORKED. dsc_last_error_message() does not describe a failure of this call, because a
 * signal handler must not write it
 * @since 0.1
 */
DSC_API dsc_result_t dsc_trace_dump_request(void);

#ifdef __cplusplus
}
#endif

#endif /* DSC_TRACE_H */
