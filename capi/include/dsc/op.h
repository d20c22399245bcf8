/**
 * @file op.h
 * @brief Reduce operations beyond the built-in ones.
 *
 * An operation belongs to the process that made it; its number is 1000 or more and is used wherever a
 * built-in one is. What must agree between ranks is what it does: the scale, or the id of a function of the
 * caller's. The numbers themselves may differ.
 */
#ifndef DSC_OP_H
#define DSC_OP_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Combines elements: inout[i] = inout[i] op in[i].
 * @param[in] in count elements, aligned for their type
 * @param[in,out] inout count elements, aligned for their type; they come from ranks before that of `in`
 * @param[in] count elements, 1 or more
 * @param[in] dtype their type
 * @param[in] context as given to dsc_op_create_user()
 *
 * It runs on whichever rank and thread happens to do a piece of the work, several threads at once, so it must
 * not depend on where it runs, and must give the same bits for the same inputs everywhere. It may not call
 * this library (DSC_ERR_REENTRANT). It has to come back: a thread that ends inside it, by pthread_exit() or
 * by being cancelled, ends the process.
 * @return 0, or any other number if it failed: the operation then fails with DSC_ERR_CALLBACK on the rank
 * where it ran, and the communicator is revoked with that cause on all ranks. A rank that had its result
 * already keeps it.
 */
typedef int32_t (*dsc_op_fn)(const void* in, void* inout, size_t count, dsc_dtype_t dtype, void* context);

/**
 * @brief Makes an operation that multiplies every input by a number as it is read, and sums.
 * @param[in] scale finite; all ranks use the same
 * @param[out] op its number; 0 on failure
 *
 * For floating-point types (DSC_ERR_UNSUPPORTED for others). The product is formed in the type that sums are
 * (f32, or f64 for f64) and not rounded to a smaller one; a scale that becomes 0 or infinite as f32 is
 * DSC_ERR_INVALID_ARG where it is used with another type than f64. Collective: no. Blocking: no. Ownership:
 * the caller's, until dsc_op_destroy(). Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW after 2^31 operations; DSC_ERR_NOMEM;
 * DSC_ERR_REENTRANT; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_op_create_premul(double scale, dsc_op_t* op);

/**
 * @brief Makes an operation of a function of the caller's, for any element type.
 * @param[in] function combines elements; in the order of the ranks
 * @param[in] context passed to the function; must live until the operation is destroyed and unused
 * @param[in] id the caller's name for what the function does: ranks whose ids differ get DSC_ERR_MISMATCH
 * @param[in] commutative 1 if the order of inputs does not matter; it is kept all the same
 * @param[out] op its number; 0 on failure
 *
 * Collective: no. Blocking: no. Ownership: the caller's, until dsc_op_destroy(). Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM; DSC_ERR_REENTRANT; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_op_create_user(dsc_op_fn function, void* context, uint64_t id, int32_t commutative,
                                        dsc_op_t* op);

/**
 * @brief Forgets an operation; its number is never used again. What runs with it goes on.
 * @param[in] op the operation; 0 does nothing
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for a number that is none; DSC_ERR_REENTRANT; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_op_destroy(dsc_op_t op);

#ifdef __cplusplus
}
#endif

#endif /* DSC_OP_H */
