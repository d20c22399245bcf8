/**
 * @file op.h
 * @brief User-defined reduce operations.
 *
 * An operation belongs to the process that created it. Its number is 1000 or more and may be used like that
 * of a built-in operation. Ranks must agree on what it does: on the scale, or on the id of a user-defined
 * function. The numbers may differ between ranks.
 */
#ifndef DSC_OP_H
#define DSC_OP_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Elements that a user-defined operation combines. Valid during the call. */
typedef struct dsc_op_call {
  size_t struct_size; /**< size of this struct as the library compiled it */
  const void* input;  /**< [count] elements of the next rank, aligned for their type */
  void* result; /**< [inout count] elements, the result of all ranks before it, aligned for their type */
  char* error; /**< [out error_capacity] a function that fails may write the reason here, ended by a zero; the
                  errors of all ranks contain it */
  size_t count;          /**< 1 or more */
  size_t error_capacity; /**< bytes at error, the final zero included */
  dsc_dtype_t dtype;     /**< type of the elements */
  int32_t reserved;      /**< 0 */
} dsc_op_call_t;

/**
 * @brief Combines elements: result[i] = result[i] op input[i].
 * @param[in] context as passed to dsc_op_create_user()
 * @param[in] call [1] the elements
 *
 * It runs on any rank that does a part of the work. So it must not depend on where it runs, and must compute
 * the same bits from the same inputs everywhere. It must return: if its thread ends inside it, by
 * pthread_exit() or by cancellation, the process ends. Threads: any thread, and several threads at once. May
 * call: nothing of this library; any call returns DSC_ERR_REENTRANT.
 * @return 0, or any other number on failure. The operation then fails with DSC_ERR_CALLBACK on the rank where
 * it ran, and the communicator is revoked with that cause on all ranks. A rank that already has its result
 * keeps it.
 */
typedef int32_t (*dsc_op_fn)(void* context, const dsc_op_call_t* call);

/**
 * @brief Creates an operation that multiplies every input by a number when it is read, and sums the products.
 * @param[in] scale finite; all ranks use the same
 * @param[out] op its number; 0 on failure
 *
 * It supports floating-point types (DSC_ERR_UNSUPPORTED for others). The product is computed in the type of
 * the sum (f32, or f64 for f64) and not rounded to a smaller type. If the scale becomes 0 or infinite as f32,
 * its use with a type other than f64 is DSC_ERR_INVALID_ARG. Collective: no. Blocking: no. Ownership: the
 * caller's, until dsc_op_destroy(). Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW after 2^31 operations; DSC_ERR_NOMEM;
 * DSC_ERR_REENTRANT; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_op_create_premul(double scale, dsc_op_t* op);

/**
 * @brief Creates an operation from a user-defined function, for any element type.
 * @param[in] combine combines elements, in rank order
 * @param[in] context passed to combine; must stay valid until the operation is destroyed and no longer
 * used
 * @param[in] id identifies what the function does: ranks with different ids get DSC_ERR_MISMATCH
 * @param[in] commutative 1 if the order of inputs does not matter; rank order is kept anyway
 * @param[out] op its number; 0 on failure
 *
 * Collective: no. Blocking: no. Ownership: the caller's, until dsc_op_destroy(). Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM; DSC_ERR_REENTRANT; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_op_create_user(dsc_op_fn combine, void* context, uint64_t id, int32_t commutative,
                                        dsc_op_t* op);

/**
 * @brief Releases an operation; its number is never used again. Running operations continue.
 * @param[in] op the operation; 0 does nothing
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for an unknown number; DSC_ERR_REENTRANT; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_op_destroy(dsc_op_t op);

#ifdef __cplusplus
}
#endif

#endif /* DSC_OP_H */
