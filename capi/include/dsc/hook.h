/**
 * @file hook.h
 * @brief Communication hooks: functions that replace the reducer's all-reduce of a bucket.
 *
 * A hook gets every complete bucket in launch order, the same on all ranks, and computes the mean of its
 * gradients over all ranks, for example in a compressed form. Built-in hooks are chosen by a text such as
 * "bf16(powersgd(rank=4, start_iteration=100))"; dsc_bucket_hooks() lists them.
 */
#ifndef DSC_HOOK_H
#define DSC_HOOK_H

#include <dsc/reducer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief A complete bucket, as passed to a hook. Everything is valid during the call. The memory of buffer
 * stays valid until the next dsc_bucket_reducer_begin(), which may replace the buckets, or until
 * dsc_bucket_reducer_destroy(); dsc_mem_retain() keeps it longer. The hook may change its contents until the
 * work of its last step is done. */
typedef struct dsc_bucket {
  size_t struct_size; /**< size of this struct as the library compiled it */
  dsc_comm_t* comm; /**< the reducer's group, for the hook's operations, which run in the order of its calls;
                       valid until the hook is removed */
  void* buffer; /**< [inout count] elements: the gradients one after another, not divided. The hook writes the
                   mean here */
  void* stream; /**< on a device: work on this stream runs after the gradients are ready and before the
                   iteration ends; NULL for host memory */
  const size_t* params;  /**< [n_params] indices of parameters */
  const size_t* offsets; /**< [n_params] first element of each in buffer */
  const size_t* counts;  /**< [n_params] number of elements of each */
  char* error;     /**< [out error_capacity] a hook that fails may write the reason here, ended by a zero; the
                      errors of all ranks contain it */
  size_t n_params; /**< parameters in the bucket */
  size_t index;    /**< number of the bucket, from 0 in launch order */
  size_t count;    /**< elements of buffer; on a device with the padding between parameters */
  size_t error_capacity; /**< bytes at error */
  dsc_dtype_t dtype;     /**< element type */
  int32_t is_last;       /**< 1: the last bucket of the iteration */
  int32_t divisor;       /**< number of ranks that take part; the mean is the sum divided by it */
  int32_t step;          /**< 0: the bucket has become complete; s + 1: the work of step s is done */
} dsc_bucket_t;

/**
 * @brief Performs one step of reducing a bucket.
 *
 * If it returns a work object, it is called again with the next step
 * when that work is done: before a later bucket is launched, or in dsc_bucket_reducer_finish(). On a device
 * the host does not wait for the operation: the next step's stream is ordered after it. All ranks must make
 * the same calls in the same order. Threads: the calling thread, which marks a gradient or finishes the
 * iteration; one at a time per reducer. May call: operations on bucket->comm, and
 * functions that do not use the reducer.
 *
 * @param[in] context as passed to dsc_bucket_reducer_set_hook()
 * @param[in] bucket [1] the bucket
 * @param[out] work an operation to wait for; the library destroys it. NULL (the initial value): buffer holds
 * the result
 *
 * @return 0; any other value ends the iteration with DSC_ERR_CALLBACK on this rank and revokes the reducer on
 * all; the errors contain the text of bucket->error
 */
typedef int32_t (*dsc_bucket_hook_fn)(void* context, const dsc_bucket_t* bucket, dsc_work_t** work);

/**
 * @brief Sets a user-defined function as the hook of a reducer.
 * @param[in] reducer reducer, between finish and begin
 * @param[in] hook function; NULL: no hook, the reducer uses its all-reduce
 * @param[in] context passed to the function
 * @param[in] name for messages and statistics; NULL: "hook"
 *
 * The hook computes the average: the reducer's option average has no effect. The threads that mark gradients
 * and finish iterations call the function, one at a time; on a device they do not wait for the device.
 * Collective: no, but the hook must be the same on all ranks. Blocking: no. Ownership: context must stay
 * valid until the hook is removed or the reducer is destroyed. Threads: one at a time per reducer.
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
 * All hooks except "allreduce" need f32 gradients. On a device "allreduce", "fp16" and "bf16" run on the
 * device, in stream order. All others compute on the host, with a copy of each bucket, and cannot be captured
 * in a graph. Before it launches a bucket, a hook of several steps waits for the operations of earlier
 * buckets; one that computes on the host also waits for their gradients. Collective: yes. Blocking: until all
 * ranks have called it. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for an unknown name, option or value (the error lists the valid ones);
 * DSC_ERR_CONFIG when ranks differ; DSC_ERR_UNSUPPORTED for gradients that the hook cannot reduce;
 * DSC_ERR_STATE inside an iteration; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_use_hook(dsc_bucket_reducer_t* reducer, const char* spec);

/**
 * @brief Writes the state of a reducer's built-in hook on this rank: error feedback, approximations, the
 * number of iterations.
 * @param[in] reducer reducer, between finish and begin
 * @param[out] state the bytes; may be NULL with capacity 0
 * @param[in] capacity bytes of state
 * @param[out] needed size of the state; 0: the hook has none
 *
 * The state can be loaded with the same hook, parameters, buckets and number of ranks. Collective: no.
 * Blocking: no. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_STATE inside an iteration or without a hook; DSC_ERR_INVALID_ARG;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_save_hook(dsc_bucket_reducer_t* reducer, void* state, size_t capacity,
                                                  size_t* needed);

/**
 * @brief Loads a saved state into the built-in hook of a reducer.
 *
 * A later rebuild of the buckets discards the state: load it after the first iteration is finished, or turn
 * rebuilding off.
 *
 * @param[in] reducer reducer, between finish and begin, with the hook of the saved state
 * @param[in] state the state, from dsc_bucket_reducer_save_hook()
 * @param[in] bytes size of the state
 *
 * Collective: no, but every rank loads its own state. Blocking: no. Ownership: state is read during the call.
 * Threads: one at a time per reducer.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for the state of another hook, or a damaged one; DSC_ERR_STATE inside
 * an iteration or without a hook; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_load_hook(dsc_bucket_reducer_t* reducer, const void* state,
                                                  size_t bytes);

/**
 * @brief Lists the built-in hooks, one per line: name, options with their defaults, and a description.
 * @param[out] text the lines, ended by a zero; may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
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
