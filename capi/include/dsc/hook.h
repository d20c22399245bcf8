/**
 * @file hook.h
 * @brief Communication hooks: what reduces a bucket in place of the reducer's own all-reduce.
 *
 * A hook sees every complete bucket in launch order, the same on all ranks, and makes the mean of its
 * gradients over all ranks, for instance in a compressed form. Built-in ones are chosen by a text such as
 * "bf16(powersgd(rank=4, start_iteration=100))"; dsc_bucket_hooks() lists them.
 */
#ifndef DSC_HOOK_H
#define DSC_HOOK_H

#include <dsc/reducer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief A complete bucket, as a hook sees it. Everything is valid during the call. The memory of buffer is
 * valid until the next dsc_bucket_reducer_begin(), which may replace the buckets, or until
 * dsc_bucket_reducer_destroy(); dsc_mem_retain() keeps it longer. The hook may change its contents until the
 * work of its last step is done. */
typedef struct dsc_bucket {
  size_t struct_size; /**< size of this struct as the library compiled it */
  dsc_comm_t* comm; /**< the reducer's group: the hook's operations go here, in the order of its calls; valid
                       until the hook is removed */
  void* buffer;     /**< count elements: the gradients one after another, undivided. The hook leaves the mean
                       here */
  void* stream;     /**< of a device: the gradients are there behind it, and what is put on it comes before
                       the end of the iteration; NULL in host memory */
  const size_t* params;  /**< n_params indices of parameters */
  const size_t* offsets; /**< element of buffer at which each of them starts */
  const size_t* counts;  /**< elements of each of them */
  char* error;     /**< empty: a hook that fails may write here why, ended by a zero, for the errors of all
                      ranks */
  size_t n_params; /**< parameters in the bucket */
  size_t index;    /**< number of the bucket, from 0 in launch order */
  size_t count;    /**< elements of buffer, on a device also those between parameters */
  size_t error_capacity; /**< bytes at error */
  dsc_dtype_t dtype;     /**< element type */
  int32_t is_last;       /**< 1: the last bucket of the iteration */
  int32_t divisor;       /**< ranks that take part: the mean is the sum over it */
  int32_t step;          /**< 0: the bucket has just become complete; s + 1: the work of step s is done */
} dsc_bucket_t;

/**
 * @brief Does one step of reducing a bucket.
 *
 * It may call the operations of bucket->comm. If it returns a work, it is called again with the next step
 * when that is done: before a later bucket is launched, or in dsc_bucket_reducer_finish(). On a device the
 * host does not wait for an operation there: the next step's stream comes behind it. All ranks must make the
 * same calls in the same order.
 *
 * @param[in] context as given to dsc_bucket_reducer_set_hook()
 * @param[in] bucket the bucket
 * @param[out] work an operation to wait for, which the library destroys; NULL (as it comes in): buffer holds
 * the result
 *
 * @return 0; anything else ends the iteration with DSC_ERR_CALLBACK on this rank, and the reducer on all; the
 * errors say what the hook has written to bucket->error
 */
typedef int32_t (*dsc_bucket_hook_fn)(void* context, const dsc_bucket_t* bucket, dsc_work_t** work);

/**
 * @brief Sets a function of the caller's as the hook of a reducer.
 * @param[in] reducer reducer, between finish and begin
 * @param[in] hook function; NULL: no hook, the reducer's own all-reduce
 * @param[in] context passed to the function
 * @param[in] name for messages and statistics; NULL: "hook"
 *
 * Averages are the hook's: the option average has no effect. The function is called by the threads that mark
 * gradients and finish iterations, one at a time, and on a device without waiting for it. Collective: no, but
 * the hook must be the same on all ranks. Blocking: no. Ownership: context must stay valid until the hook is
 * removed or the reducer destroyed. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_ERR_STATE inside an iteration; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_set_hook(dsc_bucket_reducer_t* reducer, dsc_bucket_hook_fn hook,
                                                 void* context, const char* name);

/**
 * @brief Chooses a built-in hook by name.
 * @param[in] reducer reducer, between finish and begin
 * @param[in] spec a name, with options in parentheses as key=value, and for fp16 and bf16 a hook inside; the
 * same on all ranks. NULL: no hook
 *
 * All but "allreduce" work on gradients of f32. On a device "allreduce", "fp16" and "bf16" are done there, in
 * stream order; all others compute on the host, with a copy of each bucket, and cannot be captured in a
 * graph. Hooks with steps after the first wait, when a bucket is launched, for the operations of the buckets
 * before, and those that compute on the host for the gradients of these. Collective: yes. Blocking: until all
 * ranks have called it. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for a name, option or value that does not exist (what exists is named);
 * DSC_ERR_CONFIG when ranks differ; DSC_ERR_UNSUPPORTED for gradients that the hook cannot reduce;
 * DSC_ERR_STATE inside an iteration; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_use_hook(dsc_bucket_reducer_t* reducer, const char* spec);

/**
 * @brief Gives what the built-in hook of a reducer remembers on this rank: errors to feed back,
 * approximations, the number of iterations.
 * @param[in] reducer reducer, between finish and begin
 * @param[out] state the bytes; may be NULL with capacity 0
 * @param[in] capacity bytes at state
 * @param[out] needed how many there are; 0: the hook remembers nothing
 *
 * The bytes are for the same hook, parameters, buckets and number of ranks. Collective: no. Blocking: no.
 * Threads: one at a time per reducer.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_STATE inside an iteration or without a hook; DSC_ERR_INVALID_ARG;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_save_hook(dsc_bucket_reducer_t* reducer, void* state, size_t capacity,
                                                  size_t* needed);

/**
 * @brief Makes the built-in hook of a reducer go on from a saved state.
 *
 * A reducer that rebuilds its buckets later forgets it: load after the first iteration was finished, or turn
 * rebuilding off.
 *
 * @param[in] reducer reducer, between finish and begin, with the hook of the saved state
 * @param[in] state bytes of dsc_bucket_reducer_save_hook()
 * @param[in] bytes their number
 *
 * Collective: no, but every rank loads its own state. Blocking: no. Ownership: state is read during the call.
 * Threads: one at a time per reducer.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for bytes of another hook, or damaged ones; DSC_ERR_STATE inside an
 * iteration or without a hook; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_load_hook(dsc_bucket_reducer_t* reducer, const void* state,
                                                  size_t bytes);

/**
 * @brief Gives the built-in hooks, one per line: name, options with their defaults, and what it does.
 * @param[out] text the lines, ended by a zero; may be NULL with capacity 0
 * @param[in] capacity bytes at text
 * @param[out] needed needed bytes, the final zero included
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_hooks(char* text, size_t capacity, size_t* needed);

#ifdef __cplusplus
}
#endif

#endif /* DSC_HOOK_H */
