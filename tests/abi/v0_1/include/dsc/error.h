/**
 * @file error.h
 * @brief Names of results, types and operations, and details of the last error.
 */
#ifndef DSC_ERROR_H
#define DSC_ERROR_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Details of a failure. Lists and texts are cut to what fits, texts between characters. */
typedef struct dsc_error_info {
  size_t struct_size; /**< in: size of this struct as the caller compiled it */
  uint64_t comm_id;   /**< of the communicator, see dsc_comm_id(); 0: the world, or none */
  uint64_t sequence;  /**< sequence number of the operation in that communicator, from 1; 0: none */
  uint64_t index;     /**< with DSC_ERR_NONFINITE: the first element that is not finite, in the send buffer of
                         that rank or in the gradient named by text; 0 otherwise */
  size_t n_ranks;     /**< number of valid entries in ranks, 0 to 64 */
  int64_t elapsed_ns; /**< nanoseconds for which the operation had run */
  dsc_result_t code;  /**< DSC_OK: no failure. DSC_ERR_PEER_STALLED with revoked 0: a rank is stalled, and
                         operations still wait for it */
  int32_t revoked;    /**< 1: the communicator no longer works */
  int32_t system_error; /**< errno; 0: none */
  int32_t native_code;  /**< error code of a backend on the rank at fault; 0: none */
  int32_t rank;         /**< first rank at fault in that communicator; -1: not known */
  int32_t reserved;     /**< 0 */
  int32_t ranks[64];    /**< ranks at fault */
  char operation[32];   /**< such as "all_reduce"; empty: none */
  char text[512];       /**< description of the failure, UTF-8, ended by a zero */
  char group[32];       /**< name of the communicator that sequence and ranks belong to, such as "world", or
                           "reducer" for the group of a reducer; empty: none, or not known */
} dsc_error_info_t;

/**
 * @brief Returns the name of a result, such as "DSC_ERR_TIMEOUT".
 * @param[in] result any value
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return a static string; "DSC_UNKNOWN_RESULT" for a value that is not a result
 * @since 0.1
 */
DSC_API const char* dsc_result_name(dsc_result_t result);

/**
 * @brief Returns the error text of this thread's last failed call.
 *
 * The text names the function, the expected and the actual value and, if known, rank, peer, group and
 * sequence number of the operation. A successful call does not clear it. Copy it before the next call on this
 * thread fails.
 *
 * Collective: no. Blocking: no. Ownership: the library's, per thread. Threads: any. Works after fork().
 * @return the text, never NULL; empty if no call failed on this thread
 * @since 0.1
 */
DSC_API const char* dsc_last_error_message(void);

/**
 * @brief Returns details of this thread's last failed call: the ranks at fault, the operation and its
 * sequence number, and with DSC_ERR_NONFINITE the element.
 * @param[in,out] info struct_size must be set; filled up to that size. A wrong struct_size is itself a failed
 * call
 *
 * info->text is the text of dsc_last_error_message() without the name of the function. Fields that are not
 * known, or do not apply, are empty. Use it after a failed blocking call or a failed call of a reducer; for
 * an operation with a work object use dsc_work_error_info().
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return DSC_OK (info->code is DSC_OK when no call failed on this thread); DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_last_error_info(dsc_error_info_t* info);

/**
 * @brief Returns the short name of an element type, such as "f32".
 * @param[in] dtype any value
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return a static string; "unknown" for a value that is not an element type
 * @since 0.1
 */
DSC_API const char* dsc_dtype_name(dsc_dtype_t dtype);

/**
 * @brief Returns the bytes of one element.
 * @param[in] dtype element type
 * @param[out] bytes 1, 2, 4 or 8
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return DSC_OK, or DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_dtype_bytes(dsc_dtype_t dtype, size_t* bytes);

/**
 * @brief Returns the short name of a reduce operation, such as "sum".
 * @param[in] op any value
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return a static string; "custom" for numbers from 1000 on (see op.h); "unknown" for a value that is not an
 * operation
 * @since 0.1
 */
DSC_API const char* dsc_op_name(dsc_op_t op);

#ifdef __cplusplus
}
#endif

#endif /* DSC_ERROR_H */
