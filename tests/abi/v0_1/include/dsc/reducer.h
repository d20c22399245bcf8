/**
 * @file reducer.h
 * @brief Reduces gradients in buckets while the backward pass computes them.
 *
 * Parameters, gradients and buckets are either all in host memory, or all on the device that the communicator
 * is bound to. On a device, marking a gradient only records its address and its stream. When a bucket is
 * complete, one kernel gathers it on a stream of the reducer, NCCL sums it, and another kernel writes the
 * results back. The host does not wait for the device. So an iteration may still fail after
 * dsc_bucket_reducer_finish() has returned; the next call on the reducer reports the failure.
 */
#ifndef DSC_REDUCER_H
#define DSC_REDUCER_H

#include <dsc/clip.h>
#include <dsc/comm.h>
#include <dsc/tensor.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Options of dsc_bucket_reducer_create(). Fill with dsc_bucket_reducer_options_init(). */
typedef struct dsc_bucket_reducer_options {
  size_t struct_size;           /**< size of this struct as the caller compiled it */
  const size_t* bucket_indices; /**< [n_params] explicit buckets in launch order, in the form of
                                   dsc_bucket_plan(); NULL: planned */
  const size_t* bucket_starts;  /**< [n_buckets + 1] entries; NULL: planned */
  size_t n_buckets;             /**< number of explicit buckets; 0: planned */
  size_t bucket_bytes;          /**< a bucket with this many bytes is closed; default 26,214,400 (25 MiB) */
  size_t first_bucket_bytes;    /**< the same limit for the bucket of the parameters that are declared first;
                                   this bucket is launched last; default 1,048,576 (1 MiB) */
  dsc_average_t average;        /**< default DSC_AVERAGE_PRE */
  int32_t sync;                 /**< 1 (default): copy rank 0's parameters to all ranks at creation */
  int32_t single_first_bucket;  /**< 1: one bucket per dtype and device; default 0 */
  int32_t find_unused;   /**< 1: a parameter that is not marked before dsc_bucket_reducer_finish() has no
                            gradient on this rank, and the ranks agree on the parameters without a gradient on
                            any rank; 0 (default): an unmarked parameter is an error */
  int32_t static_graph;  /**< 1: every iteration uses the same parameters equally often. The first one counts
                            the marks and is reduced at its end; later ones treat a parameter as ready after as
                            many marks; default 0 */
  dsc_rebuild_t rebuild; /**< when the buckets are rebuilt in the order in which gradients become ready;
                            default DSC_REBUILD_ONCE. Buckets are never rebuilt if they are explicit, with
                            find_unused, or after a rank has asked for a gradient view */
  int32_t small_bucket_first; /**< 1: after a rebuild, first_bucket_bytes limits the bucket that is launched
                                 first, as in PyTorch; 0 (default): the one that is launched last */
  dsc_dtype_t grad_dtype; /**< element type of buckets and views, such as DSC_DTYPE_F32 for 16-bit parameters.
                             Gradients are converted when they are read, and the result is rounded once; 0
                             (default): the parameters' type */
  int32_t keep_sparse_rows; /**< 1: the result of a sparse gradient is the rows of all ranks, concatenated; 0
                               (default): it is coalesced: each index occurs once, in ascending order, with
                               the sum of its rows */
  int32_t reserved;         /**< 0 */
} dsc_bucket_reducer_options_t;

/**
 * @brief Fills reducer options with their defaults.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_bucket_reducer_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_options_init(dsc_bucket_reducer_options_t* options,
                                                     size_t struct_size);

/**
 * @brief Creates a reducer: verifies the parameters, plans and allocates the buckets, and copies rank 0's
 * parameters to all ranks.
 *
 * Without explicit buckets, dsc_bucket_plan() plans the parameters, in forward order, with the limits
 * first_bucket_bytes and bucket_bytes. Then the list of buckets is reversed, so that the buckets of the last
 * layers come first. The small bucket of first_bucket_bytes is therefore launched last, as in PyTorch with
 * DDP_SET_LAST_BUCKET_CAP=1: only its reduction is left when the backward pass ends.
 *
 * @param[in] comm communicator; the reducer creates its own group from it
 * @param[in] params parameters in forward order; if sync is 1, data is read on rank 0 and written on the
 * others; otherwise it is unused
 * @param[in] n_params 1 or more
 * @param[in] options NULL: defaults; the same on all ranks
 * @param[out] reducer the new reducer; NULL on failure
 *
 * Collective: yes. Blocking: until all ranks have called it. Ownership: descriptions are copied; data is used
 * during the call only. Threads: one at a time per communicator.
 * @return DSC_OK; DSC_ERR_INVALID_ARG (also if an explicit bucket is empty or mixes types or devices, or if
 * the buckets omit or repeat a parameter); DSC_ERR_MISMATCH; DSC_ERR_CONFIG when options differ between
 * ranks; DSC_ERR_NOSPACE; DSC_ERR_UNSUPPORTED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_create(dsc_comm_t* comm, const dsc_tensor_t* params, size_t n_params,
                                               const dsc_bucket_reducer_options_t* options,
                                               dsc_bucket_reducer_t** reducer);

/**
 * @brief Sets whether the following iterations are reduced.
 *
 * An iteration that begins with sync 0 communicates nothing. Its gradients are added, unchanged, to the sums
 * that this rank keeps, and dsc_bucket_reducer_finish() only ends the iteration. The next iteration with sync
 * 1 reduces the sums, as after PyTorch's no_sync. A gradient that was computed in its view stays there.
 *
 * @param[in] reducer reducer, between finish and begin
 * @param[in] sync 1 or 0; a new reducer has 1. The same on all ranks
 *
 * Collective: no. Blocking: no. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_STATE inside an iteration; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_set_sync(dsc_bucket_reducer_t* reducer, int32_t sync);

/**
 * @brief Writes the list of parameters for which no rank had a gradient.
 *
 * No result was written for them. With find_unused the list is that of the latest reduced iteration; with
 * static_graph it is that of the first iteration, which is valid for all.
 *
 * @param[in] reducer reducer
 * @param[out] indices parameters in ascending order; may be NULL with capacity 0
 * @param[in] capacity entries of indices
 * @param[out] needed number of such parameters
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_unused(const dsc_bucket_reducer_t* reducer, size_t* indices,
                                               size_t capacity, size_t* needed);

/**
 * @brief Returns how often the buckets were rebuilt.
 *
 * When the count has grown, the views of dsc_bucket_reducer_grad_view() have new addresses from the next
 * dsc_bucket_reducer_begin() on. Older views stay readable and writable until the reducer is destroyed, but
 * receive no results of later iterations.
 *
 * @param[in] reducer reducer
 * @param[out] count rebuilds, 0 or more
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_rebuilds(const dsc_bucket_reducer_t* reducer, uint64_t* count);

/**
 * @brief Registers tensors of the model that are not parameters (PyTorch's buffers), such as running means.
 * @param[in] reducer reducer
 * @param[in] buffers tensors in host memory, on the communicator's device, or both; with the same sizes and
 * types on all ranks
 * @param[in] n_buffers number of buffers, 0 or more
 *
 * Collective: yes. Blocking: until all ranks have called it. Ownership: descriptions are copied; the data of
 * buffers must stay valid until the reducer is destroyed or this function is called again. Threads: one at a
 * time per reducer.
 * @return DSC_OK; DSC_ERR_MISMATCH; DSC_ERR_INVALID_ARG; DSC_ERR_CONFIG; DSC_ERR_UNSUPPORTED;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_set_buffers(dsc_bucket_reducer_t* reducer,
                                                    const dsc_tensor_t* buffers, size_t n_buffers);

/**
 * @brief Makes the buffers equal on all ranks. Call it before a forward pass.
 * @param[in] reducer reducer, between finish and begin
 * @param[in] how DSC_BUFFER_SYNC_BROADCAST: all ranks get the buffers of rank 0, or, under a join, of the
 * lowest rank that has batches. DSC_BUFFER_SYNC_MEAN: floats become their mean over the ranks, or, under a
 * join, over the ranks that have batches; other types, such as counters, are broadcast
 *
 * Collective: yes. Blocking: until the buffers are equal. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_STATE inside an iteration or without buffers;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_sync_buffers(dsc_bucket_reducer_t* reducer, dsc_buffer_sync_t how);

/**
 * @brief Scales the gradients of the latest iteration, and limits their norm.
 *
 * The norm is computed in f64 from the reduced gradients. Each rank reads its share of them, so all ranks get
 * the same number. If the norm is NaN or infinite, no gradient is changed on any rank: with loss scaling,
 * skip the step. Otherwise each gradient is multiplied by scale * min(1, max_norm / (norm + 1e-6)), as by
 * PyTorch's clip_grad_norm_. This happens in its view and in the memory that was marked ready, which must
 * still be valid.
 *
 * On a device the call is ordered after the work already queued on the stream that was passed to
 * dsc_bucket_reducer_finish(). This stream must still be valid and must not be capturing a graph. Work queued
 * on it afterwards sees the scaled gradients. The host waits for the norm, at most as long as the
 * time-out of the reducer's communicator.
 *
 * @param[in] reducer reducer, between finish and begin
 * @param[in] options NULL: defaults, which only compute the norm; the same on all ranks
 * @param[out] norm the norm of the gradients after they are multiplied by scale and before max_norm limits it
 *
 * Collective: yes, over the reducer's ranks and, if options->shards is set, over the ranks of that
 * communicator. Under a join, or with a hook after which gradients differ between ranks, each rank clips by
 * itself and nothing is compared. Blocking: until all ranks have called it. Threads: one at a time per
 * reducer.
 * @return DSC_OK, also when the norm is not finite; DSC_ERR_STATE without a reduced iteration, or in the
 * capture of a graph; DSC_ERR_INVALID_ARG; DSC_ERR_UNSUPPORTED for integers and sparse gradients;
 * DSC_ERR_MISMATCH when max_norm or scale differ between ranks; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED; and the
 * failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_clip(dsc_bucket_reducer_t* reducer, const dsc_clip_options_t* options,
                                             double* norm);

/**
 * @brief Starts an iteration.
 *
 * On a device everything that the iteration reads or writes is ordered after the work already queued on the
 * stream.
 *
 * @param[in] reducer reducer
 * @param[in] stream for device memory, NULL: the default stream; must be NULL for host memory
 *
 * Collective: no; under a join yes, if the iteration is reduced. Blocking: no; under a join until all ranks
 * have called it. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_ERR_STATE when the previous iteration was not finished (the error names the parameters
 * without a gradient), when the stream captures a graph while non-finite checks are on, or under a join with
 * throw_on_early_end when a rank has no more batches; DSC_ERR_MISMATCH and the failures of an operation under
 * a join; DSC_ERR_UNSUPPORTED (a stream for host memory); DSC_ERR_BAD_HANDLE; DSC_ERR_REVOKED, or, the first
 * time, its cause when an iteration on a device failed after it was finished; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_begin(dsc_bucket_reducer_t* reducer, void* stream);

/**
 * @brief Adds a gradient to this rank's sum for a parameter, without marking it ready.
 *
 * For several backward passes per optimizer step. Nothing is communicated; dsc_bucket_reducer_mark_ready()
 * completes the sum. The sum is rounded to the view's type at every addition. On a device, integer gradients
 * cannot be added.
 *
 * @param[in] reducer reducer, between begin and finish
 * @param[in] index parameter
 * @param[in] gradient [param_count of param_dtype] elements; not the parameter's own view
 * @param[in] stream for device memory, NULL: the default stream; must be NULL for host memory
 *
 * Collective: no. Blocking: no. Ownership: gradient is read during the call only; on a device it is read in
 * stream order. Threads: any, different parameters at once.
 * @return DSC_OK; DSC_ERR_STATE (no iteration, or already ready); DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE;
 * DSC_ERR_REVOKED; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_accumulate(dsc_bucket_reducer_t* reducer, size_t index,
                                                   const void* gradient, void* stream);

/**
 * @brief Marks a parameter's gradient as ready. The last one of a bucket starts its reduction.
 *
 * Buckets start strictly in launch order, the same on all ranks. Accumulated gradients are added. With
 * static_graph, mark a parameter as often as in the first iteration, always with the same memory. The memory
 * is read at the last mark; in the first iteration dsc_bucket_reducer_finish() reads it.
 *
 * @param[in] reducer reducer, between begin and finish
 * @param[in] index parameter
 * @param[in,out] gradient [param_count of param_dtype] elements. It is read now, on a device
 * until finish, and dsc_bucket_reducer_finish() writes the result to it. NULL or the parameter's view: the
 * gradient is already in the view, and nothing is copied.
 * @param[in] stream for device memory, NULL: the default stream; must be NULL for host memory
 *
 * Collective: no, but every rank marks every parameter once per iteration. Blocking: no, with two exceptions.
 * A hook of several steps may wait for slower ranks to complete an earlier bucket; on a device, the first
 * call to NCCL may wait for the other ranks, at most the communicator's time-out. Ownership: gradient and
 * stream must stay valid until finish, and until dsc_bucket_reducer_clip() if it follows; on a device
 * gradient is also read until finish. Threads: any, several at once.
 * @return DSC_OK; DSC_ERR_STATE (marked twice, no iteration, or NULL for a view that was replaced);
 * DSC_ERR_INVALID_ARG (index, or memory that overlaps another gradient's of this iteration);
 * DSC_ERR_BAD_HANDLE; DSC_ERR_REVOKED; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_mark_ready(dsc_bucket_reducer_t* reducer, size_t index,
                                                   void* gradient, void* stream);

/**
 * @brief Declares that this rank has no gradient for a parameter: it contributes zeros.
 * @param[in] reducer reducer, between begin and finish
 * @param[in] index parameter
 *
 * After finish the parameter's view holds the result. Sums of iterations that were not reduced count as its
 * gradient. Collective: no. Blocking: no. Threads: any, several at once.
 * @return as dsc_bucket_reducer_mark_ready()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_mark_unused(dsc_bucket_reducer_t* reducer, size_t index);

/**
 * @brief Marks a sparse gradient: some rows of the parameter, which has expect_sparse 1.
 *
 * dsc_bucket_reducer_finish() gathers the rows of all ranks, lengths first, and averages them. Sparse
 * gradients must be in host memory. They have separate buckets, and hooks do not see them.
 *
 * @param[in] reducer reducer, between begin and finish
 * @param[in] index parameter
 * @param[in] indices [n_rows] row numbers, below the first size of the parameter's shape; may repeat
 * @param[in] values [n_rows * row_count of param_dtype] contiguous rows; the number of elements per row is
 * the product of the other sizes of the shape
 * @param[in] n_rows 0 or more
 *
 * Collective: no, but every rank marks every parameter once per iteration. Blocking: as
 * dsc_bucket_reducer_mark_ready(). Ownership: the rows are copied. Threads: any, several at once.
 * @return DSC_OK; DSC_ERR_STATE; DSC_ERR_INVALID_ARG for an index out of range (then the whole call has no
 * effect), or a parameter whose gradients are not sparse; DSC_ERR_BAD_HANDLE; DSC_ERR_REVOKED; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_mark_sparse(dsc_bucket_reducer_t* reducer, size_t index,
                                                    const int64_t* indices, const void* values,
                                                    size_t n_rows);

/**
 * @brief Returns the result for a sparse gradient.
 * @param[in] reducer reducer, between finish and begin
 * @param[in] index parameter with expect_sparse 1
 * @param[out] indices [n_rows] row numbers
 * @param[out] values [n_rows * row_count of param_dtype] rows
 * @param[out] n_rows rows of the result
 *
 * Collective: no. Blocking: no. Ownership: the reducer's; indices and values are valid until the next
 * iteration is finished or the reducer is destroyed. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_ERR_STATE inside an iteration; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_sparse(const dsc_bucket_reducer_t* reducer, size_t index,
                                               const int64_t** indices, const void** values, size_t* n_rows);

/**
 * @brief Returns the address of a parameter's gradient in its bucket.
 * @param[in] reducer reducer
 * @param[in] index parameter
 * @param[out] view [param_count of view_dtype] elements. The
 * address stays the same unless the buckets are rebuilt (dsc_bucket_reducer_rebuilds()). After any rank has
 * called this, buckets are not rebuilt again, except that a rebuild decided by the last finished iteration
 * still happens at the next dsc_bucket_reducer_begin(). Then ask for the view again; until you do,
 * dsc_bucket_reducer_mark_ready() with NULL fails
 *
 * A gradient computed there is never copied. Between mark_ready and finish it must not be touched; after
 * finish it holds the result until the next begin. Collective: no. Blocking: no. Ownership: the reducer's;
 * view is valid until the buckets are rebuilt or the reducer is destroyed. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_grad_view(dsc_bucket_reducer_t* reducer, size_t index, void** view);

/**
 * @brief Copies a parameter's gradient out of its bucket, for callers that keep no view.
 * @param[in] reducer reducer, between finish and begin
 * @param[in] index parameter
 * @param[out] gradient [param_count of view_dtype] elements
 *
 * Unlike dsc_bucket_reducer_grad_view(), it does not prevent rebuilds. Collective: no. Blocking: no.
 * Ownership: gradient is written during the call. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_STATE inside an iteration; DSC_ERR_UNSUPPORTED on a device;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_read_grad(const dsc_bucket_reducer_t* reducer, size_t index,
                                                  void* gradient);

/**
 * @brief Waits for all buckets and writes the results into the gradients that were marked ready.
 *
 * On a device the stream waits instead of the host: work queued on it afterwards sees the results. The host
 * waits only if non-finite checks are on (dsc_comm_set_nonfinite_check()), until the gradients are gathered
 * and the other ranks have arrived.
 *
 * @param[in] reducer reducer
 * @param[in] stream for device memory, NULL: the default stream; must be NULL for host memory
 *
 * Collective: yes. Blocking: until all buckets are reduced; on a device: no. Threads: one at a time per
 * reducer.
 * @return DSC_OK; DSC_ERR_STATE when parameters were not marked. The error names them and says which buckets'
 * views already hold results. No gradient that was passed in is written, and the iteration ends. If other
 * ranks had marked these parameters, those ranks get DSC_ERR_MISMATCH naming this rank and parameter, and the
 * reducer is revoked. If all ranks omitted the same ones, the reducer keeps working, and a hook with error
 * feedback keeps the errors of the buckets that had started; DSC_ERR_STATE inside a forward or backward pass
 * of dsc_pipe_run(), which changes nothing; DSC_ERR_BAD_HANDLE; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_finish(dsc_bucket_reducer_t* reducer, void* stream);

/**
 * @brief Waits until the device has completed all finished iterations, and reports whether one has failed.
 *
 * Call it before you rely on the results of the last iteration, since dsc_bucket_reducer_finish() does not
 * wait for the device.
 *
 * @param[in] reducer reducer
 * @param[in] timeout_ms milliseconds to wait; -1: the communicator's time-out
 *
 * Collective: no. Blocking: until the device is done; not for host memory. Threads: any.
 * @return DSC_OK; DSC_IN_PROGRESS when the time has passed; the failure of an iteration, or DSC_ERR_REVOKED
 * if an earlier call returned it; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_synchronize(dsc_bucket_reducer_t* reducer, int32_t timeout_ms);

/**
 * @brief Writes the buckets in launch order, in the form of dsc_bucket_plan().
 * @param[in] reducer reducer
 * @param[out] indices [n_params] entries
 * @param[out] starts [n_params + 1] entries, of which n_buckets + 1 are written
 * @param[out] n_buckets number of buckets
 *
 * A rebuild shows here from the next dsc_bucket_reducer_begin() on. Collective: no. Blocking: no. Threads:
 * any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_buckets(const dsc_bucket_reducer_t* reducer, size_t* indices,
                                                size_t* starts, size_t* n_buckets);

/**
 * @brief Describes the reducer and its latest iterations, as a JSON object.
 *
 * The fields have the names of PyTorch's DDP logging data and describe finished iterations: bucket_sizes,
 * rebuilt_bucket_sizes, rebuilt_per_bucket_param_indices, prev_iteration_grad_ready_order_indices,
 * unused_parameter_size, comm_hook, the times of forward, backward and communication in nanoseconds and their
 * means over sampled iterations (1 to 10, then every hundredth), and more; docs/buckets.md lists them.
 *
 * @param[in] reducer reducer, between finish and begin
 * @param[out] text the JSON object, ended by a zero; may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * Collective: no. Blocking: no. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_STATE inside an iteration; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_stats_json(const dsc_bucket_reducer_t* reducer, char* text,
                                                   size_t capacity, size_t* needed);

/**
 * @brief Draws the latest iteration as SVG: when each gradient was ready, when each bucket was reduced, and
 * how much of the reduction did not overlap with computation.
 * @param[in] reducer reducer, between finish and begin
 * @param[out] text the picture, ended by a zero; may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * Collective: no. Blocking: no. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_STATE inside an iteration, or before the first one;
 * DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_draw(const dsc_bucket_reducer_t* reducer, char* text, size_t capacity,
                                             size_t* needed);

/**
 * @brief Writes running totals of the reducer's operations, in the form of dsc_comm_stats().
 * @param[in] reducer reducer
 * @param[in,out] stats the totals; stats[0].struct_size must be set; may be NULL with capacity 0
 * @param[in] capacity entries of stats
 * @param[out] needed number of totals
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_stats(const dsc_bucket_reducer_t* reducer, dsc_op_stats_t* stats,
                                              size_t capacity, size_t* needed);

/**
 * @brief Ends this rank's participation in a reducer but keeps its memory: views stay readable and writable
 * until dsc_bucket_reducer_destroy().
 *
 * For programs that still use views when they leave, and for bindings whose views own the memory. The other
 * ranks get DSC_ERR_PEER_LEFT in the next call that needs this rank. Afterwards every call on the reducer
 * returns DSC_ERR_STATE, except this one, which does nothing, and dsc_bucket_reducer_destroy().
 *
 * @param[in] reducer reducer
 *
 * Collective: no. Blocking: no; running reductions are revoked on all ranks. On a device: until it has
 * completed all finished iterations, at most the communicator's time-out. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_REENTRANT in a hook of the reducer; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_close(dsc_bucket_reducer_t* reducer);

/**
 * @brief Releases a reducer; closes it first if it is open (dsc_bucket_reducer_close()).
 * @param[in] reducer reducer; NULL does nothing
 *
 * Collective: no. Blocking: as dsc_bucket_reducer_close(). Views are invalid afterwards. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_destroy(dsc_bucket_reducer_t* reducer);

#ifdef __cplusplus
}
#endif

#endif /* DSC_REDUCER_H */
