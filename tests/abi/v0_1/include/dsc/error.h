/**
 * @file error.h
 * @brief Names of results, types and operations, and the text of the last error.
 */
#ifndef DSC_ERROR_H
#define DSC_ERROR_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

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
