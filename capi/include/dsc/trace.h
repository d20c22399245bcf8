/**
 * @file trace.h
 * @brief The flight recorder: what the last operations of every group were, and how far they came.
 *
 * Each group records its last 2,000 operations, always. DSC_TRACE_BUFFER_SIZE sets another number, 0 none. A
 * trace is JSON with the field names of PyTorch's flight recorder; docs/tracing.md describes it.
 *
 * With the environment variable DSC_TRACE_DIR, set when the world is made, every rank writes its trace to
 * DSC_TRACE_DIR/dsc_trace_rank_R.json (R: the rank) by itself when one of its groups fails, whether or not it
 * makes any call then. The thread that writes it also delivers log records: a log callback that takes long
 * keeps the file waiting.
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
 * @param[in] path the file, which is replaced as a whole; its folder is made where it is missing. NULL:
 * DSC_TRACE_DIR/dsc_trace_rank_R.json, where R is the rank in the world
 *
 * The file is readable by its owner only (0600). Collective: no. Blocking: for the file system only. Threads:
 * any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG when path is NULL and DSC_TRACE_DIR was not set when the world was
 * made, when path is empty, or when it is a link, a device, a FIFO or a folder, which are never replaced;
 * DSC_ERR_SYSTEM when the file cannot be written; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED;
 * DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_trace_dump(const dsc_comm_t* comm, const char* path);

/**
 * @brief Gives this rank's trace of all groups of the communicator's world as text.
 * @param[in] comm communicator; may have failed, and another thread may be inside a call on it
 * @param[out] text the trace; may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed needed bytes, the final zero included; the next trace may be longer
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED;
 * DSC_ERR_REENTRANT
 * @since 0.1
 */
DSC_API dsc_result_t dsc_trace_json(const dsc_comm_t* comm, char* text, size_t capacity, size_t* needed);

/**
 * @brief Asks for the trace files of all worlds of this process, in DSC_TRACE_DIR. For signal handlers.
 *
 * A thread of the library writes them soon, whatever the other threads are stuck in; only a log callback that
 * takes long keeps it from that. Async-signal-safe.
 *
 * Collective: no. Blocking: no. Threads: any, and signal handlers.
 * @return DSC_OK when it was asked for; DSC_ERR_STATE when no world of this process was made with
 * DSC_TRACE_DIR; DSC_ERR_FORKED. dsc_last_error_message() says nothing about it: it may not be written in a
 * signal handler
 * @since 0.1
 */
DSC_API dsc_result_t dsc_trace_dump_request(void);

#ifdef __cplusplus
}
#endif

#endif /* DSC_TRACE_H */
