/**
 * @file log.h
 * @brief Log records: written by environment variable, sent to a callback, or polled.
 */
#ifndef DSC_LOG_H
#define DSC_LOG_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief A log record, and the rank that made it. */
typedef struct dsc_log_record {
  size_t struct_size;    /**< size of this struct as the library compiled it */
  const char* message;   /**< one line of UTF-8 without a line feed, ended by a zero; 1,023 bytes at most */
  int64_t time_ns;       /**< time of the record in nanoseconds of CLOCK_REALTIME */
  dsc_log_level_t level; /**< how urgent it is */
  int32_t rank;          /**< world rank of the thread that made the record; -1: none, or not known yet */
} dsc_log_record_t;

/**
 * @brief Receives one log record.
 * @param[in] context the pointer that was passed with the callback
 * @param[in] record [1] valid during the call only
 *
 * It must not throw; exceptions are caught and ignored. Threads: the library's log thread, one record after
 * another, never while the library holds a lock that a call needs. May call: functions that only return
 * constants (names, versions, dsc_last_error_message()); any other call returns DSC_ERR_REENTRANT.
 */
typedef void (*dsc_log_fn)(void* context, const dsc_log_record_t* record);

/**
 * @brief Sends log records to a callback, instead of the previous callback and the standard error stream.
 *
 * By default the library writes no records, with one exception: when an operation has waited 30 s for other
 * ranks, it says so once (DSC_LOG=off: never). Set the environment variable DSC_LOG (error, warn, info or
 * debug) to write records to the standard error stream, or set a callback here. Up to 1,024 records are
 * queued; when the queue is full, the newest are dropped, and the next record reports how many.
 *
 * @param[in] callback the function; NULL removes it
 * @param[in] context passed to the callback; must stay valid until the callback is removed
 * @param[in] level the least urgent level that the callback receives; other records are handled as before
 *
 * Collective: no. Blocking: when a callback is removed or replaced, the call waits until the old callback has
 * received the earlier records, or until none was delivered for 5 s. It also waits for a running call of the
 * old callback to return (except from inside that callback). Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for an unknown level; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_log_set_callback(dsc_log_fn callback, void* context, dsc_log_level_t level);

/**
 * @brief Removes the oldest record from the queue, for languages that cannot run callbacks on other threads.
 *
 * The first call with a level above DSC_LOG_LEVEL_OFF starts recording at that level; DSC_LOG_LEVEL_OFF stops
 * it. Up to 1,024 records are queued; later ones are dropped and counted, as for dsc_log_set_callback().
 *
 * @param[in] level the least urgent level to record
 * @param[out] text the record's line; empty without a record. Text that does not fit is lost
 * @param[in] capacity bytes of text, at least 2. Reading removes the record, so its size cannot be asked for
 * first; 1,024 are always enough
 * @param[out] needed size of the record's line in bytes, the final zero included; 1 without a record
 * @param[out] text_level the level of the record
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK or DSC_TRUNCATED with a record; DSC_DONE without one; DSC_ERR_INVALID_ARG; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_log_read(dsc_log_level_t level, char* text, size_t capacity, size_t* needed,
                                  dsc_log_level_t* text_level);

#ifdef __cplusplus
}
#endif

#endif /* DSC_LOG_H */
