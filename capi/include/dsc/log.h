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

/** @brief A log record, and the rank that made it. */
typedef struct dsc_log_record {
  size_t struct_size;    /**< size of this struct as the library compiled it */
  const char* message;   /**< one line of UTF-8 without a line feed, ended by a zero; 1,023 bytes at most */
  int64_t time_ns;       /**< when it was made: nanoseconds of CLOCK_REALTIME */
  dsc_log_level_t level; /**< how urgent it is */
  int32_t rank; /**< rank in the world of the thread that made the record, or -1: not known yet, or none */
} dsc_log_record_t;

/**
 * @brief Receives one log record.
 * @param context the pointer that was given with the callback
 * @param record valid during the call only
 *
 * Called on the library's log thread, one record after another, never while the library holds a lock that a
 * call needs. It may call the pure functions (names, versions, dsc_last_error_message()); any other call
 * returns DSC_ERR_REENTRANT. It must not throw; what it throws is caught and dropped.
 */
typedef void (*dsc_log_fn)(void* context, const dsc_log_record_t* record);

/**
 * @brief Sends log records to a callback, in place of the one before and of the standard error stream.
 *
 * The library is silent unless the environment variable DSC_LOG (error, warn, info or debug) sends records to
 * the standard error stream, or a callback is set here, except that it then says once of an operation that it
 * has waited 30 s for other ranks (DSC_LOG=off: never). Records wait in a queue of 1,024; when it is full the
 * newest are dropped and the number of dropped records is reported in the next one.
 *
 * @param[in] callback the function; NULL removes it
 * @param[in] context passed on to it; must live until the callback is removed
 * @param[in] level the least urgent level that it receives; records that it does not receive go where they
 * went before
 *
 * Collective: no. Blocking: when a callback is removed or replaced, waits until the old one has received the
 * records that were made before, or for 5 s none was delivered, and until a call of it that is running has
 * returned (except from inside that callback). Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for an unknown level; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_log_set_callback(dsc_log_fn callback, void* context, dsc_log_level_t level);

/**
 * @brief Takes the oldest record from the queue, for languages whose functions cannot be called from foreign
 * threads.
 *
 * The first call with a level above DSC_LOG_LEVEL_OFF starts the recording at that level; DSC_LOG_LEVEL_OFF
 * stops it. Up to 1,024 records wait; later ones are dropped and counted, as for dsc_log_set_callback().
 *
 * @param[in] level the least urgent level to record
 * @param[out] text the record's line; empty when there is none. What does not fit is lost
 * @param[in] capacity bytes of text, at least 2: a record leaves the queue when it is read, so its size
 * cannot be asked for before. 1,024 are always enough
 * @param[out] needed how many the record needs, the final zero included; 1 when there is none
 * @param[out] text_level the level of the record
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK or DSC_TRUNCATED with a record; DSC_DONE when there is none; DSC_ERR_INVALID_ARG;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_log_read(dsc_log_level_t level, char* text, size_t capacity, size_t* needed,
                                  dsc_log_level_t* text_level);

#ifdef __cplusplus
}
#endif

#endif /* DSC_LOG_H */
