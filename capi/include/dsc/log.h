/**
 * @file log.h
 * @brief Log records: by environment, by callback, or by polling.
 */
#ifndef DSC_LOG_H
#define DSC_LOG_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Receives one log record.
 * @param ctx the pointer that was given with the callback
 * @param level one of ::dsc_log_level
 * @param message one line without a line feed, ended by a zero; valid during the call only
 *
 * Called on the library's log thread, one record after another, never while the library holds a lock that a
 * call needs. It may call the pure functions (names, versions, dsc_last_error_message); any other call
 * returns DSC_ERR_REENTRANT. It must not throw; what it throws is caught and dropped.
 */
typedef void (*dsc_log_fn)(void* ctx, int32_t level, const char* message);

/**
 * @brief Sends log records to a callback, in place of the one before.
 *
 * The library is silent unless the environment variable DSC_LOG (error, warn, info or debug) sends records to
 * the standard error stream, or a callback is set here. Records wait in a queue of 1,024; when it is full the
 * newest are dropped and the number of dropped records is reported in the next one.
 *
 * @param[in] callback the function; NULL removes it
 * @param[in] ctx passed on to it; must live until the callback is removed
 * @param[in] level the least urgent ::dsc_log_level that it receives
 *
 * Collective: no. Blocking: when a callback is removed or replaced, waits until the old one has received the
 * records that were made before, or for 5 s none was delivered, and until a call of it that is running has
 * returned (except from inside that callback). Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for an unknown level; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_log_set_callback(dsc_log_fn callback, void* ctx, int32_t level);

/** @brief A log record, with the rank that it is of. */
typedef struct dsc_log_record {
  size_t struct_size; /**< size of this struct as the library compiled it */
  int32_t level;      /**< one of ::dsc_log_level */
  int32_t rank;    /**< rank in the world of the thread that made the record, or -1: not known yet, or none */
  int64_t time_ns; /**< when it was made: nanoseconds of CLOCK_REALTIME */
  const char* message; /**< one line without a line feed, ended by a zero */
} dsc_log_record_t;

/**
 * @brief Receives one log record, under the rules of ::dsc_log_fn.
 * @param ctx the pointer that was given with the callback
 * @param record valid during the call only
 */
typedef void (*dsc_log_record_fn)(void* ctx, const dsc_log_record_t* record);

/**
 * @brief Sends log records to the logging of a program or language, in place of any callback before.
 *
 * As dsc_log_set_callback(), but the callback gets whole records, and what it receives is not written to the
 * standard error stream for DSC_LOG besides.
 *
 * @param[in] callback the function; NULL removes it
 * @param[in] ctx passed on to it; must live until the callback is removed
 * @param[in] level the least urgent ::dsc_log_level that it receives
 *
 * Collective: no. Blocking: as dsc_log_set_callback(). Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for an unknown level; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_log_set_record_callback(dsc_log_record_fn callback, void* ctx, int32_t level);

/**
 * @brief Takes the oldest record from the queue, for languages whose functions cannot be called from foreign
 * threads.
 *
 * The first call with a level above DSC_LOG_OFF starts the recording at that level; DSC_LOG_OFF stops it.
 *
 * @param[in] level the least urgent ::dsc_log_level to record
 * @param[out] message receives the text, cut to fit and ended by a zero
 * @param[in] message_bytes size of message, at least 2
 * @param[out] message_level the level of the record
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK with a record, DSC_DONE when there is none (message is empty), DSC_ERR_INVALID_ARG,
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_log_read(int32_t level, char* message, size_t message_bytes, int32_t* message_level);

#ifdef __cplusplus
}
#endif

#endif /* DSC_LOG_H */
