/**
 * @file error.h
 * @brief Names of results, types and operations, and what is known about the last error.
 */
#ifndef DSC_ERROR_H
#define DSC_ERROR_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief What is known about a failure. Lists and texts are cut to what fits, texts between characters. */
typedef struct dsc_error_info {
  size_t struct_size;   /**< in: size of this struct as the caller compiled it */
  uint64_t comm_id;     /**< of the communicator, see dsc_comm_id(); 0: the world, or none */
  uint64_t sequence;    /**< number of the operation in that communicator, from 1; 0: none */
  uint64_t index;       /**< with DSC_ERR_NONFINITE: the first element that is not finite, in that rank's send
                           buffer, or in the gradient that text names; 0 otherwise */
  size_t n_ranks;       /**< number of valid entries in ranks, 0 to 64 */
  int64_t elapsed_ns;   /**< how long the operation had run, in nanoseconds */
  dsc_result_t code;    /**< DSC_OK: no failure. DSC_ERR_PEER_STALLED with revoked 0: a rank is stalled, and
                           operations still wait for it */
  int32_t revoked;      /**< 1: the communicator no longer works */
  int32_t system_error; /**< errno; 0: none */
  int32_t native_code;  /**< error of a backend on the rank at fault; 0: none */
  int32_t rank;         /**< first rank at fault in that communicator; -1: not known */
  int32_t reserved;     /**< 0 */
  int32_t ranks[64];    /**< ranks at fault */
  char operation[32];   /**< such as "all_reduce"; empty: none */
  char text[512];       /**< what happened, UTF-8, ended by a zero */
  char group[32];       /**< name of the communicator that sequence and ranks belong to, such as "world", or
                           "reducer" for the group of a reducer; empty: none, or not known */
} dsc_error_info_t;

/**
 * @brief Gives the name of a result, such as "DSC_ERR_TIMEOUT".
 * @param[in] result any value
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return a static string; "DSC_UNKNOWN_RESULT" for a value that is no result
 * @since 0.1
 */
DSC_API const char* dsc_result_name(dsc_result_t result);

/**
 * @brief Gives the text of this thread's latest failing call.
 *
 * The text names the function, what was expected and what came and, where they are known, rank, peer, group
 * and operation number. A call that succeeds does not clear it. Copy it before the next call on this thread
 * fails.
 *
 * Collective: no. Blocking: no. Ownership: the library's, per thread. Threads: any. Works after fork().
 * @return the text, never NULL; empty if no call failed on this thread
 * @since 0.1
 */
DSC_API const char* dsc_last_error_message(void);

/**
 * @brief Tells what is known about this thread's latest failing call: the ranks at fault, the operation and
 * its number, and with DSC_ERR_NONFINITE the element.
 * @param[in,out] info struct_size must be set; filled up to that size. A wrong one is itself a failing call
 *
 * As dsc_last_error_message(), whose words without the function's name are info->text. What is not known, or
 * does not concern an operation of ranks, is left empty. Use it where a blocking call or a reducer failed;
 * dsc_work_error_info() tells the same of an operation with a work object.
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return DSC_OK (info->code is DSC_OK when no call failed on this thread); DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_last_error_info(dsc_error_info_t* info);

/**
 * @brief Gives the short name of an element type, such as "f32".
 * @param[in] dtype any value
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return a static string; "unknown" for a value that is no element type
 * @since 0.1
 */
DSC_API const char* dsc_dtype_name(dsc_dtype_t dtype);

/**
 * @brief Gives the bytes of one element.
 * @param[in] dtype element type
 * @param[out] bytes 1, 2, 4 or 8
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return DSC_OK, or DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_dtype_bytes(dsc_dtype_t dtype, size_t* bytes);

/**
 * @brief Gives the short name of a reduce operation, such as "sum".
 * @param[in] op any value
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return a static string; "custom" for numbers from 1000 on (see op.h); "unknown" for a value that is no
 * operation
 * @since 0.1
 */
DSC_API const char* dsc_op_name(dsc_op_t op);

#ifdef __cplusplus
}
#endif

#endif /* DSC_ERROR_H */
