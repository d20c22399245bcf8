/**
 * @file reducer.h
 * @brief Gradients reduced in buckets while they are being computed.
 *
 * Parameters, their gradients and the buckets are all in host memory or all on the device that the
 * communicator is bound to. On a device marking only notes where a gradient is and on which stream; when a
 * bucket is complete, one launch gathers it on a stream of the reducer's own, NCCL sums it, and one launch
 * writes the results back. Nothing waits for the device, so an iteration can fail after
 * dsc_bucket_reducer_finish() has returned: the reducer's next call tells.
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
  const size_t* bucket_indices; /**< explicit buckets in launch order, as dsc_bucket_plan() gives them; NULL:
                                   planned */
  const size_t* bucket_starts;  /**< n_buckets + 1 entries; NULL: planned */
  size_t n_buckets;             /**< number of explicit buckets; 0: planned */
  size_t
      bucket_bytes; /**< a bucket is closed as soon as it holds so many bytes; default 26,214,400 (25 MiB) */
  size_t first_bucket_bytes; /**< the same for the bucket of the parameters that are declared first, which is
                                launched last; default 1,048,576 (1 MiB) */
  dsc_average_t average;     /**< default DSC_AVERAGE_PRE */
  int32_t sync;              /**< 1 (default): copy rank 0's parameters to all ranks at creation */
  int32_t
      single_first_bucket; /**< 1: one bucket per (dtype, device), as PyTorch's first iteration; default 0 */
  int32_t find_unused;     /**< 1: parameters that are not marked before dsc_bucket_reducer_finish() have no
                              gradient on this rank, and the ranks agree on those without one anywhere; 0
                              (default): they are an error */
  int32_t static_graph;  /**< 1: every iteration uses the same parameters equally often: the first one counts
                            the marks and is reduced at its end, later ones take a parameter as ready after as
                            many marks; default 0 */
  dsc_rebuild_t rebuild; /**< when the buckets are rebuilt in the order in which gradients become ready;
                            default DSC_REBUILD_ONCE. Never with explicit buckets, with find_unused, or while
                            a rank has asked for a gradient view */
  int32_t
      small_bucket_first; /**< 1: in a rebuilt plan first_bucket_bytes is the limit of the bucket that is
                             launched first, as in PyTorch; 0 (default): of the one that is launched last */
  dsc_dtype_t grad_dtype; /**< element type of buckets and views, such as DSC_DTYPE_F32 over parameters of 16
                             bits: gradients are converted as they are taken and the result is rounded once; 0
                             (default): the parameters' type */
  int32_t keep_sparse_rows; /**< 1: results of sparse gradients are the rows of all ranks one after another; 0
                               (default): coalesced, each index once in ascending order with the sum of its
                               rows */
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
 * @brief Makes a reducer: verifies the parameters, plans the buckets, allocates them and copies rank 0's
 * parameters.
 *
 * Without explicit buckets the parameters, given in forward order, are planned by dsc_bucket_plan() with the
 * limits first_bucket_bytes and bucket_bytes, and the list of buckets is reversed, so that those of the last
 * layers come first. The small bucket of first_bucket_bytes is therefore the last one that is launched, as
 * PyTorch has it with DDP_SET_LAST_BUCKET_CAP=1: after the backward pass its reduction is waited for.
 *
 * @param[in] comm communicator; the reducer uses a group of its own made from it
 * @param[in] params parameters in forward order; data is written when sync is 1 (on ranks other than 0), else
 * unused
 * @param[in] n_params 1 or more
 * @param[in] options NULL: defaults; the same on all ranks
 * @param[out] reducer the new reducer; NULL on failure
 *
 * Collective: yes. Blocking: until all ranks came. Ownership: descriptions are copied; data is used during
 * the call only. Threads: one at a time per communicator.
 * @return DSC_OK; DSC_ERR_INVALID_ARG (also for an explicit bucket that is empty, mixes types or devices, or
 * misses or repeats a parameter); DSC_ERR_MISMATCH; DSC_ERR_CONFIG when options differ between ranks;
 * DSC_ERR_NOSPACE; DSC_ERR_UNSUPPORTED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_create(dsc_comm_t* comm, const dsc_tensor_t* params, size_t n_params,
                                               const dsc_bucket_reducer_options_t* options,
                                               dsc_bucket_reducer_t** reducer);

/**
 * @brief Says whether the following iterations are reduced.
 *
 * An iteration that begins with sync 0 communicates nothing: gradients that are marked are added to what this
 * rank collects, without being changed, and dsc_bucket_reducer_finish() only ends it. The next one with sync
 * 1 reduces the sums (PyTorch's no_sync). A gradient that stands in its view stays there.
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
 * @brief Gives the parameters for which no rank had a gradient.
 *
 * Nothing was written for them. Known with find_unused for the latest iteration that was reduced, with
 * static_graph for the first one, and so for all.
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
 * @brief Gives how often the buckets were rebuilt.
 *
 * When it has grown, the views of dsc_bucket_reducer_grad_view() stand elsewhere from the next
 * dsc_bucket_reducer_begin() on. Views that were given before stay readable and writable until the reducer is
 * destroyed, but hold nothing of later iterations.
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
 * @brief Names the tensors of a model that are no parameters, such as the running means of a normalisation.
 * @param[in] reducer reducer
 * @param[in] buffers tensors in host memory, on the communicator's device, or some of both; the same counts
 * and types on all ranks
 * @param[in] n_buffers number of buffers, 0 or more
 *
 * Collective: yes. Blocking: until all ranks came. Ownership: descriptions are copied; data must stay valid
 * as long as buffers are synchronised. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_ERR_MISMATCH; DSC_ERR_INVALID_ARG; DSC_ERR_CONFIG; DSC_ERR_UNSUPPORTED;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_set_buffers(dsc_bucket_reducer_t* reducer,
                                                    const dsc_tensor_t* buffers, size_t n_buffers);

/**
 * @brief Makes the buffers equal on all ranks, to be called before a forward pass.
 * @param[in] reducer reducer, between finish and begin
 * @param[in] how DSC_BUFFER_SYNC_BROADCAST: rank 0's, under a join those of the lowest rank that has batches;
 * DSC_BUFFER_SYNC_MEAN: the mean of floats over the ranks, under a join over those that have batches; other
 * types, such as counters, as with DSC_BUFFER_SYNC_BROADCAST
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
 * The norm is computed in f64 from the reduced gradients, of which each rank reads its share, so that all
 * ranks get the same number. If it is a NaN or infinite, no gradient is changed on any rank: with loss
 * scaling, skip the step then. Otherwise each gradient is multiplied by scale * min(1, max_norm / (norm +
 * 1e-6)), in its view and in the memory that was marked ready, which must still be valid. As PyTorch's
 * clip_grad_norm_.
 *
 * On a device it comes behind the work that is on the stream of dsc_bucket_reducer_finish(), which must still
 * be valid and cannot be captured in a graph now; what comes on that stream afterwards sees the scaled
 * gradients. The host waits for the norm, at most the time-out.
 *
 * @param[in] reducer reducer, between finish and begin
 * @param[in] options NULL: defaults, which only compute the norm; the same on all ranks
 * @param[out] norm the norm after scale and before the limit
 *
 * Collective: yes, over the reducer's ranks and shards; under a join, and with a hook that leaves gradients
 * different, each rank does it alone and nothing is compared. Blocking: until all ranks came. Threads: one at
 * a time per reducer.
 * @return DSC_OK, also when the norm is not finite; DSC_ERR_STATE without a reduced iteration, or in the
 * capture of a graph; DSC_ERR_INVALID_ARG; DSC_ERR_UNSUPPORTED for integers and sparse gradients;
 * DSC_ERR_MISMATCH when max_norm or scale differ between ranks; DSC_ERR_BAD_HANDLE;
 * DSC_ERR_FORKED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_clip(dsc_bucket_reducer_t* reducer, const dsc_clip_options_t* options,
                                             double* norm);

/**
 * @brief Starts an iteration.
 *
 * On a device everything that the iteration reads or writes comes behind the work that is on the stream now.
 *
 * @param[in] reducer reducer
 * @param[in] stream for device memory, NULL: the default stream; must be NULL for host memory
 *
 * Collective: no; under a join yes, if the iteration is reduced. Blocking: no; under a join until all ranks
 * came. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_ERR_STATE when the iteration before was not finished (the parameters that miss a
 * gradient are named), in the capture of a graph while non-finite gradients are looked for, or under a join
 * with throw_on_early_end when a rank has no more batches; DSC_ERR_MISMATCH and the failures of an operation
 * under a join; DSC_ERR_UNSUPPORTED (a stream for host memory);
 * DSC_ERR_BAD_HANDLE; DSC_ERR_REVOKED, or once its cause when an iteration on a device failed after it was
 * finished; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_begin(dsc_bucket_reducer_t* reducer, void* stream);

/**
 * @brief Adds a gradient to what this rank has collected for a parameter, without marking it ready.
 *
 * For several backward passes per optimizer step: nothing is communicated; the sum is what
 * dsc_bucket_reducer_mark_ready() completes. The sum is rounded to the view's type at every addition. On
 * a device gradients of integers cannot be added.
 *
 * @param[in] reducer reducer, between begin and finish
 * @param[in] index parameter
 * @param[in] gradient as many elements as the parameter has, of its type; not the parameter's own view
 * @param[in] stream for device memory, NULL: the default stream; must be NULL for host memory
 *
 * Collective: no. Blocking: no. Ownership: gradient is read during the call only, or on a device when its
 * stream gets there. Threads: any, different parameters at once.
 * @return DSC_OK; DSC_ERR_STATE (no iteration, or already ready); DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE;
 * DSC_ERR_REVOKED; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_accumulate(dsc_bucket_reducer_t* reducer, size_t index,
                                                   const void* gradient, void* stream);

/**
 * @brief Marks a parameter's gradient as ready. The last one of a bucket starts its reduction.
 *
 * Buckets start strictly in their order, the same on all ranks. What was accumulated is added. With
 * static_graph a parameter is marked as often as in the first iteration, with the same memory, which is read
 * at the last mark; in the first one it is read by finish.
 *
 * @param[in] reducer reducer, between begin and finish
 * @param[in] index parameter
 * @param[in,out] gradient as many elements as the parameter has, of its type: read now, on a device until
 * finish, and written with the result by dsc_bucket_reducer_finish(). NULL or the parameter's view: the
 * gradient stands in the view already, nothing is copied.
 * @param[in] stream for device memory, NULL: the default stream; must be NULL for host memory
 *
 * Collective: no, but every rank marks every parameter once per iteration. Blocking: no; with a hook of
 * several steps for an earlier bucket of slower ranks; on a device NCCL may wait for the other ranks the
 * first time, at most the communicator's time-out. Ownership: gradient must stay valid and, on a device,
 * unchanged until finish, its stream valid as well. Threads: any, several at once.
 * @return DSC_OK; DSC_ERR_STATE (marked twice, no iteration, or NULL for a view that was replaced);
 * DSC_ERR_INVALID_ARG (index, or memory that
 * overlaps another gradient's of this iteration); DSC_ERR_BAD_HANDLE; DSC_ERR_REVOKED; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_mark_ready(dsc_bucket_reducer_t* reducer, size_t index,
                                                   void* gradient, void* stream);

/**
 * @brief Says that this rank has no gradient for a parameter: it contributes zeros.
 * @param[in] reducer reducer, between begin and finish
 * @param[in] index parameter
 *
 * The result stands in the parameter's view after finish. What was collected in iterations that were not
 * reduced counts as its gradient. Collective: no. Blocking: no. Threads: any, several at once.
 * @return as dsc_bucket_reducer_mark_ready()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_mark_unused(dsc_bucket_reducer_t* reducer, size_t index);

/**
 * @brief Marks a sparse gradient: some rows of the parameter, which has expect_sparse 1.
 *
 * In dsc_bucket_reducer_finish() the rows of all ranks are gathered, lengths first, and averaged. Sparse
 * gradients have buckets of their own, are in host memory, and no hook sees them.
 *
 * @param[in] reducer reducer, between begin and finish
 * @param[in] index parameter
 * @param[in] indices n_rows row numbers, below the first size of the parameter's shape; may repeat
 * @param[in] values n_rows rows of the parameter's type, one after another; a row has as many elements as the
 * other sizes of the shape say
 * @param[in] n_rows 0 or more
 *
 * Collective: no, but every rank marks every parameter once per iteration. Blocking: as
 * dsc_bucket_reducer_mark_ready(). Ownership: the rows are copied. Threads: any, several at once.
 * @return DSC_OK; DSC_ERR_STATE; DSC_ERR_INVALID_ARG for an index out of range (nothing of this call is
 * kept), or a parameter whose gradients are not sparse; DSC_ERR_BAD_HANDLE; DSC_ERR_REVOKED; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_mark_sparse(dsc_bucket_reducer_t* reducer, size_t index,
                                                    const int64_t* indices, const void* values,
                                                    size_t n_rows);

/**
 * @brief Gives the result for a sparse gradient.
 * @param[in] reducer reducer, between finish and begin
 * @param[in] index parameter with expect_sparse 1
 * @param[out] indices n_rows row numbers
 * @param[out] values n_rows rows
 * @param[out] n_rows rows of the result
 *
 * Collective: no. Blocking: no. Ownership: the memory is the reducer's, valid until the next iteration is
 * finished or the reducer destroyed. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_ERR_STATE inside an iteration; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_sparse(const dsc_bucket_reducer_t* reducer, size_t index,
                                               const int64_t** indices, const void** values, size_t* n_rows);

/**
 * @brief Gives the place of a parameter's gradient in its bucket.
 * @param[in] reducer reducer
 * @param[in] index parameter
 * @param[out] view as many elements as the parameter has, of its type, or of grad_dtype if that was given.
 * The address stays the same unless the buckets are rebuilt (dsc_bucket_reducer_rebuilds()). Once a rank has
 * asked for a view they are not rebuilt any more, except by the next dsc_bucket_reducer_begin() where the
 * iteration that was finished before has decided it: mark_ready without memory is an error then, until the
 * view was asked for again
 *
 * A gradient computed there is never copied. Between mark_ready and finish it must not be touched; after
 * finish it holds the result until the next begin. Collective: no. Blocking: no. Ownership: the reducer's.
 * Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_grad_view(dsc_bucket_reducer_t* reducer, size_t index, void** view);

/**
 * @brief Copies a parameter's gradient out of its bucket, for callers that keep no view.
 * @param[in] reducer reducer, between finish and begin
 * @param[in] index parameter
 * @param[out] gradient as many elements as the parameter has, of the view's type
 *
 * Unlike dsc_bucket_reducer_grad_view() it does not keep the buckets from being rebuilt. Collective: no.
 * Blocking: no. Ownership: gradient is written during the call. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_STATE inside an iteration; DSC_ERR_UNSUPPORTED on a device;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_read_grad(const dsc_bucket_reducer_t* reducer, size_t index,
                                                  void* gradient);

/**
 * @brief Waits for all buckets and writes the results into the gradients that were marked ready.
 *
 * On a device the stream waits, not the host: what comes on it afterwards sees the results. The host
 * waits only while non-finite gradients are looked for (dsc_comm_set_nonfinite_check()): until the gradients
 * are gathered, and for the other ranks.
 *
 * @param[in] reducer reducer
 * @param[in] stream for device memory, NULL: the default stream; must be NULL for host memory
 *
 * Collective: yes. Blocking: until all buckets are reduced; on a device: no. Threads: one at a time per
 * reducer.
 * @return DSC_OK; DSC_ERR_STATE when parameters were not marked: they are named, no gradient that was passed
 * in is written, the message says which buckets' views hold results already, and the iteration is over; other
 * ranks that had marked them get DSC_ERR_MISMATCH naming this rank and parameter, and then the reducer is
 * revoked; where all ranks miss the same ones the reducer goes on, and a hook that remembers errors keeps
 * what it has not sent of the buckets that had started; DSC_ERR_STATE inside a forward or backward pass of
 * dsc_pipe_run(), which changes nothing; DSC_ERR_BAD_HANDLE; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_finish(dsc_bucket_reducer_t* reducer, void* stream);

/**
 * @brief Waits until all iterations that were finished are over on the device, and says whether one has
 * failed.
 *
 * To be asked before results of the last iteration are relied on, since dsc_bucket_reducer_finish() does not
 * wait there.
 *
 * @param[in] reducer reducer
 * @param[in] timeout_ms milliseconds to wait; -1: the communicator's time-out
 *
 * Collective: no. Blocking: until the device is done; in host memory not at all. Threads: any.
 * @return DSC_OK; DSC_IN_PROGRESS when the time has passed; the failure of an iteration, or DSC_ERR_REVOKED
 * when it has been told before; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_synchronize(dsc_bucket_reducer_t* reducer, int32_t timeout_ms);

/**
 * @brief Gives the buckets in launch order, in the form of dsc_bucket_plan().
 * @param[in] reducer reducer
 * @param[out] indices n_params entries
 * @param[out] starts n_params + 1 entries, of which n_buckets + 1 are written
 * @param[out] n_buckets number of buckets
 *
 * After a rebuild, from the next dsc_bucket_reducer_begin() on, they are the rebuilt ones. Collective: no.
 * Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_buckets(const dsc_bucket_reducer_t* reducer, size_t* indices,
                                                size_t* starts, size_t* n_buckets);

/**
 * @brief Tells about the reducer and its latest iterations, as a JSON object.
 *
 * The fields have the names of PyTorch's DDP logging data and describe the iterations that were finished:
 * bucket_sizes, rebuilt_bucket_sizes, rebuilt_per_bucket_param_indices,
 * prev_iteration_grad_ready_order_indices, unused_parameter_size, comm_hook, the times of forward, backward
 * and communication in nanoseconds and their means over sampled iterations (1 to 10, then every hundredth),
 * and more; docs/buckets.md lists them.
 *
 * @param[in] reducer reducer, between finish and begin
 * @param[out] text the object, ended by a zero; may be NULL with capacity 0
 * @param[in] capacity bytes at text
 * @param[out] needed needed size with the zero
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
 * how much of that no computation hid.
 * @param[in] reducer reducer, between finish and begin
 * @param[out] text the picture, ended by a zero; may be NULL with capacity 0
 * @param[in] capacity bytes at text
 * @param[out] needed needed size with the zero
 *
 * Collective: no. Blocking: no. Threads: one at a time per reducer.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_STATE inside an iteration, or before the first one;
 * DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_draw(const dsc_bucket_reducer_t* reducer, char* text, size_t capacity,
                                             size_t* needed);

/**
 * @brief Gives running totals of the reducer's operations, in the form of dsc_comm_stats().
 * @param[in] reducer reducer
 * @param[out] stats the totals; stats[0].struct_size must be set; may be NULL with capacity 0
 * @param[in] capacity entries of stats
 * @param[out] needed number of totals there are
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_stats(const dsc_bucket_reducer_t* reducer, dsc_op_stats_t* stats,
                                              size_t capacity, size_t* needed);

/**
 * @brief Ends this rank's part in a reducer, and keeps its memory: views stay readable and writable until
 * dsc_bucket_reducer_destroy().
 *
 * For programs that still use views when they leave, and bindings whose views own the memory. The other ranks
 * get DSC_ERR_PEER_LEFT in the next call that needs this one. Every later call on the reducer but this one
 * and dsc_bucket_reducer_destroy() gives DSC_ERR_STATE; closing again does nothing.
 *
 * @param[in] reducer reducer
 *
 * Collective: no. Blocking: no; reductions that run are revoked on all ranks. On a device: until iterations
 * that were finished are over there, at most the communicator's time-out. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_REENTRANT in a hook of the reducer; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_bucket_reducer_close(dsc_bucket_reducer_t* reducer);

/**
 * @brief Releases a reducer, which is closed first if it was not (dsc_bucket_reducer_close()).
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
