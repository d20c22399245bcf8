/**
 * @file sharded.h
 * @brief Sharded data parallelism: each rank keeps one shard of the gradients, optimizer state and
 * parameters.
 *
 * Parameters are stored in flat buffers, called *buckets*, each of one element type. *Units* are sets of
 * buckets that are used together, such as a layer. Rank r of n owns shard r of every bucket, elements r *
 * size / n to (r + 1) * size / n - 1. Gradients are reduced so that each rank gets the sum for its shard. The
 * program's optimizer updates the shard, and then the new parameters are gathered from all ranks.
 *
 * | stage | full parameters | full gradients | known as |
 * |---|---|---|---|
 * | 1 | always | always | ZeRO 1, Megatron's distributed optimizer |
 * | 2 | always | of a unit until it is reduced | ZeRO 2 |
 * | 3 | of a unit from unshard to reshard | of a unit until it is reduced | ZeRO 3, FSDP |
 *
 * Everything is either in host memory, or in memory of the device that the communicator is bound to; the
 * parameters passed to dsc_sharded_create() decide. On a device, calls work in stream order: a call is
 * ordered after the work already queued on its `stream`, and work queued later is ordered after the call.
 * Only dsc_sharded_clip() waits for the device; an operation that fails later is reported by a later call.
 * NULL is the default stream. No stream may be capturing a graph. For host memory `stream` must be NULL.
 */
#ifndef DSC_SHARDED_H
#define DSC_SHARDED_H

#include <dsc/clip.h>
#include <dsc/comm.h>
#include <dsc/tensor.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Sharded parameters, on one rank. Thread-safety: one thread at a time for begin, finish,
 * clip, step_done, unshard, wait and reshard; any thread for the rest. */
typedef struct dsc_sharded dsc_sharded_t;

/** @brief How parameters are laid out; the same on all ranks. Fill with dsc_shard_plan_options_init(). */
typedef struct dsc_shard_plan_options {
  size_t struct_size;        /**< size of this struct as the caller compiled it */
  const size_t* unit_starts; /**< [n_units] entries, ascending from 0: the first parameter of each unit; NULL:
                                units are planned. Not for DSC_SHARD_LAYOUT_MEGATRON */
  const uint8_t* alone; /**< [n_params] one entry per parameter; 1: it is alone in a planned unit, such as an
                           embedding that stages share; NULL: none */
  size_t n_units;       /**< entries of unit_starts; 0: planned */
  size_t bucket_elements; /**< a planned unit, or a bucket of DSC_SHARD_LAYOUT_MEGATRON, is closed when it has
                             this many elements; 0: never; default 40,000,000 */
  size_t alignment; /**< DSC_SHARD_LAYOUT_UNIT: shards are multiples of this many elements; default 16 */
  dsc_shard_layout_t layout; /**< default DSC_SHARD_LAYOUT_UNIT */
  int32_t wide_padding;      /**< 1: bucket ends are multiples of 65,536 too (MEGATRON); default 0 */
} dsc_shard_plan_options_t;

/** @brief A flat buffer of one element type. */
typedef struct dsc_shard_bucket {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  size_t unit;        /**< unit that it belongs to; units are numbered in the order of their parameters */
  size_t used;        /**< elements without the padding at the end */
  size_t size;        /**< elements, a multiple of the number of shards */
  dsc_dtype_t dtype;  /**< element type */
  int32_t reserved;   /**< 0 */
} dsc_shard_bucket_t;

/** @brief Elements that a shard of one layout takes from a shard of another layout. */
typedef struct dsc_shard_copy {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  size_t param;       /**< parameter that they belong to */
  size_t from_shard;  /**< shard that they come from */
  size_t from_bucket; /**< its bucket */
  size_t from_start;  /**< first element, counted in that shard of the bucket */
  size_t to_bucket;   /**< bucket of the new layout */
  size_t to_start;    /**< first element, counted in the new shard of that bucket */
  size_t count;       /**< number of elements, 1 or more */
} dsc_shard_copy_t;

/** @brief Options of dsc_sharded_create(), the same on all ranks. Fill with dsc_sharded_options_init(). */
typedef struct dsc_sharded_options {
  size_t struct_size;                   /**< size of this struct as the caller compiled it */
  const dsc_shard_plan_options_t* plan; /**< layout; NULL: its defaults */
  size_t max_live_bytes;  /**< limit for the full parameters (stage 3), and for the full gradients (stages 2
                             and 3), of all units held at a time; at least the bytes of the largest unit; 0
                             (default): no limit */
  int32_t stage;          /**< 1, 2 (default) or 3 */
  dsc_average_t average;  /**< DSC_AVERAGE_PRE (default), _POST or _NONE */
  dsc_dtype_t grad_dtype; /**< type of gradients: 0 (default), the parameters'; DSC_DTYPE_F32 for parameters
                             of 8 or 16 bits; a float of 8 or 16 bits for parameters of f32 */
  int32_t shard_size; /**< hybrid sharding: ranks r * shard_size to (r + 1) * shard_size - 1 share one copy of
                         the parameters, and the gradients of all copies are summed; a divisor of the number
                         of ranks; 0 (default): all ranks share one copy */
  int32_t prefetch;   /**< stage 3: number of units to gather ahead, in the order in which the previous step
                         used them; default 1 */
  int32_t sync;       /**< 1 (default): all ranks take rank 0's parameters; 0: each rank takes its own */
} dsc_sharded_options_t;

/** @brief This rank's shard of a bucket. */
typedef struct dsc_sharded_shard {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  void* params;  /**< [inout count] parameters, valid until the object is destroyed; in stages 1 and 2 a part
  of the  full buffer */
  void* grads;   /**< [inout count of grad_dtype] gradients, valid from dsc_sharded_finish() until the next
                    begin; on a device   in stream order */
  size_t unit;   /**< unit of the bucket */
  size_t bucket; /**< number of the bucket */
  size_t start;  /**< first element, counted in the bucket */
  size_t count;  /**< number of elements, of params and of grads; padding included */
  dsc_dtype_t dtype;      /**< type of params */
  dsc_dtype_t grad_dtype; /**< type of grads */
} dsc_sharded_shard_t;

/** @brief A part of a parameter that this rank owns. */
typedef struct dsc_sharded_range {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  size_t param;       /**< parameter */
  size_t param_start; /**< first element, counted in the parameter */
  size_t bucket;      /**< bucket */
  size_t shard_start; /**< first element, counted in this rank's shard of the bucket */
  size_t count;       /**< number of elements, 1 or more */
} dsc_sharded_range_t;

/** @brief Bytes that sharded parameters hold on this rank. Full gradients (stages 2 and 3) and full
 * parameters (stage 3) come from pools that are kept until destroy. They hold two units of gradients and
 * prefetch + 1 units of parameters, sized for the largest consecutive units, at most max_live_bytes. Beyond
 * that, memory is allocated and given back as needed: pages on the host, stream-ordered allocations on a
 * device. It is counted from the first call that names the unit. */
typedef struct dsc_sharded_memory_info_t {
  size_t struct_size;       /**< size of this struct as the caller compiled it */
  size_t param_shard_bytes; /**< parameter shards; 0 in stages 1 and 2, where they are part of param_bytes */
  size_t grad_shard_bytes;  /**< gradient shards */
  size_t param_bytes;       /**< full parameters, now */
  size_t grad_bytes;        /**< full gradients, now */
  size_t peak_param_bytes;  /**< largest param_bytes since creation */
  size_t peak_grad_bytes;   /**< largest grad_bytes since creation */
} dsc_sharded_memory_info_t;

/**
 * @brief Fills options of a layout with their defaults.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_shard_plan_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_shard_plan_options_init(dsc_shard_plan_options_t* options, size_t struct_size);

/**
 * @brief Plans buckets for parameters and divides them among shards. Only sizes are computed.
 *
 * - DSC_SHARD_LAYOUT_UNIT: the parameters of a unit one after another, one bucket per type, padded to a
 * multiple of shards x alignment.
 * - DSC_SHARD_LAYOUT_MEGATRON: from the last parameter to the first, one list of buckets per type; every
 * parameter starts at a multiple of 64 elements, every bucket ends at a multiple of lcm(shards, 128), or
 * lcm(shards, 128, 65536) with wide_padding. Each bucket is a unit.
 * - DSC_SHARD_LAYOUT_DEEPSPEED: as DSC_SHARD_LAYOUT_UNIT, padded to a multiple of 2 x shards.
 * - DSC_SHARD_LAYOUT_PARTITIONED: every parameter is a bucket, cut into parts of ceil(count / shards)
 * elements, the last of which may be short or empty.
 *
 * @param[in] counts [n] elements of each parameter, in forward order
 * @param[in] dtypes ::dsc_dtype of each parameter
 * @param[in] n number of parameters, 1 or more
 * @param[in] shards number of shards, 1 or more
 * @param[in] options NULL: defaults
 * @param[out] param_buckets [n] entries: bucket of each parameter
 * @param[out] param_starts [n] entries: its first element, counted in the bucket
 * @param[in,out] buckets the buckets, at most n; buckets[0].struct_size must be set; may be NULL with
 * capacity 0
 * @param[in] capacity entries of buckets
 * @param[out] needed number of buckets
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM
 * @since 0.1
 */
DSC_API dsc_result_t dsc_shard_plan(const size_t* counts, const dsc_dtype_t* dtypes, size_t n, size_t shards,
                                    const dsc_shard_plan_options_t* options, size_t* param_buckets,
                                    size_t* param_starts, dsc_shard_bucket_t* buckets, size_t capacity,
                                    size_t* needed);

/**
 * @brief Lists what one shard of a layout takes from the shards of another layout of the same parameters.
 *
 * With this list, m ranks can read a checkpoint of n ranks: shard r of the new layout copies these parts of
 * the old shards. The same list is valid for parameters and for everything with the same elements, such as
 * the moments of an optimizer. Padding is not copied.
 *
 * @param[in] counts [n] elements of each parameter
 * @param[in] dtypes ::dsc_dtype of each parameter
 * @param[in] n number of parameters, 1 or more
 * @param[in] from_shards number of shards of the old layout
 * @param[in] from_options options of the old layout; NULL: defaults
 * @param[in] to_shards number of shards of the new layout
 * @param[in] to_options options of the new layout; NULL: defaults
 * @param[in] shard 0 to to_shards - 1
 * @param[in,out] copies in the order of the new shard; copies[0].struct_size must be set; may be NULL with
 * capacity 0
 * @param[in] capacity entries of copies
 * @param[out] needed number of copies
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM
 * @since 0.1
 */
DSC_API dsc_result_t dsc_shard_copies(const size_t* counts, const dsc_dtype_t* dtypes, size_t n,
                                      size_t from_shards, const dsc_shard_plan_options_t* from_options,
                                      size_t to_shards, const dsc_shard_plan_options_t* to_options,
                                      size_t shard, dsc_shard_copy_t* copies, size_t capacity,
                                      size_t* needed);

/**
 * @brief Fills options with their defaults.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_sharded_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_options_init(dsc_sharded_options_t* options, size_t struct_size);

/**
 * @brief Shards parameters: verifies that they agree on all ranks, plans the layout, allocates the buffers
 * and copies the values into them.
 *
 * @param[in] comm communicator; the object creates its own groups from it
 * @param[in] params parameters in forward order, all in host memory or all on the device of comm. data is
 * read on rank 0, or with sync 0 on all ranks, where NULL means zeros; on a device it is read after the work
 * already queued on the default stream
 * @param[in] n_params 1 or more
 * @param[in] options NULL: defaults
 * @param[out] sharded the new object; NULL on failure
 *
 * Collective: yes. Blocking: until all ranks have called it. Ownership: descriptions are copied; data is used
 * during the call only. Threads: one at a time per communicator.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_MISMATCH naming a parameter that differs between ranks;
 * DSC_ERR_CONFIG naming an option that differs between ranks; DSC_ERR_UNSUPPORTED for types that cannot be
 * averaged, and for parameters on a device where the library has no kernels; DSC_ERR_OVERFLOW;
 * DSC_ERR_NOSPACE; DSC_ERR_NOMEM; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_create(dsc_comm_t* comm, const dsc_tensor_t* params, size_t n_params,
                                        const dsc_sharded_options_t* options, dsc_sharded_t** sharded);

/**
 * @brief Starts an iteration, in which every parameter gets a gradient.
 * @param[in] sharded sharded parameters
 * @param[in] accumulate 0: this iteration's result replaces the gradient shards; 1: it is added to them, for
 * several micro-batches per step
 * @param[in] stream host memory: NULL; a device: the stream on which the optimizer has read the gradient
 * shards, and on which views may be written next
 *
 * Collective: no. Blocking: no. Threads: one at a time per sharded parameters.
 * @return DSC_OK; DSC_ERR_STATE when the previous iteration was not finished (the error names the parameters
 * without a gradient), when its gradients were neither used nor dropped (dsc_sharded_step_done()), or when
 * accumulate is 1 and there are no gradients to add to; DSC_ERR_INVALID_ARG; DSC_ERR_UNSUPPORTED (a stream;
 * gradients on a device with dsc_comm_set_nonfinite_check() on); DSC_ERR_BUSY; DSC_ERR_BAD_HANDLE;
 * DSC_ERR_REVOKED; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_begin(dsc_sharded_t* sharded, int32_t accumulate, void* stream);

/**
 * @brief Adds a gradient to this rank's sum for a parameter, without marking it ready.
 *
 * Nothing is communicated, and the full gradient keeps its memory until dsc_sharded_mark_ready() completes
 * it. The sum is rounded to the gradient type at every addition.
 *
 * @param[in] sharded sharded parameters, between begin and finish
 * @param[in] index parameter
 * @param[in] gradient [param_count] elements; not the parameter's own view
 * @param[in] dtype type of its elements: the gradient type or the parameter's; 0: the gradient type
 * @param[in] stream as for dsc_sharded_mark_ready()
 *
 * Collective: no. Blocking: no, except as dsc_sharded_mark_ready(). Ownership: as for
 * dsc_sharded_mark_ready(). Threads: any, different parameters at once.
 * @return as dsc_sharded_mark_ready()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_accumulate(dsc_sharded_t* sharded, size_t index, const void* gradient,
                                            dsc_dtype_t dtype, void* stream);

/**
 * @brief Marks a parameter's gradient as ready. The last one of a unit starts its reduction.
 *
 * Units are reduced strictly from the last one to the first, the same on all ranks. Accumulated gradients are
 * added.
 *
 * @param[in] sharded sharded parameters, between begin and finish
 * @param[in] index parameter
 * @param[in] gradient [param_count] elements, in memory of the parameters' kind; it is copied.
 * NULL or the parameter's view: the gradient is already in the view
 * @param[in] dtype type of its elements: the gradient type or the parameter's; 0: the gradient type
 * @param[in] stream host memory: NULL; a device: the stream that computes the gradient
 *
 * Collective: no, but every rank marks every parameter once per iteration. Blocking: no, except that in
 * stages 2 and 3 the first gradient of a unit may wait for units that were started before: at most 20 ms, or,
 * where max_live_bytes would be exceeded, until they are reduced. On a device the call does not wait: the
 * stream does. Ownership: host: gradient is read during the call; device: it is read in stream order, so work
 * queued on the stream after the call may reuse its memory. Threads: any, several at once.
 * @return DSC_OK; DSC_ERR_STATE (marked twice, or no iteration); DSC_ERR_INVALID_ARG; DSC_ERR_UNSUPPORTED (a
 * stream); DSC_ERR_BAD_HANDLE; DSC_ERR_REVOKED; DSC_ERR_FORKED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_mark_ready(dsc_sharded_t* sharded, size_t index, const void* gradient,
                                            dsc_dtype_t dtype, void* stream);

/**
 * @brief Declares that this rank has no gradient for a parameter: it contributes zeros.
 * @param[in] sharded sharded parameters, between begin and finish
 * @param[in] index parameter
 *
 * Collective: no. Blocking: as dsc_sharded_mark_ready(). Threads: any, several at once.
 * @return as dsc_sharded_mark_ready()
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_mark_unused(dsc_sharded_t* sharded, size_t index);

/**
 * @brief Waits until all units are reduced; this rank's gradient shards then hold the averages.
 *
 * Also waits for running gathers of parameters, so that the optimizer may write to the shards.
 *
 * @param[in] sharded sharded parameters
 * @param[in] stream host memory: NULL; a device: the stream waits instead of the host; run the optimizer on
 * it
 *
 * Collective: yes. Blocking: until all units are reduced; on a device only if parameters were not marked.
 * Threads: one at a time per sharded parameters.
 * @return DSC_OK; DSC_ERR_STATE when parameters were not marked: the error names them, the contents of the
 * gradient shards are undefined, and the iteration ends. If other ranks had marked them, those ranks get
 * DSC_ERR_MISMATCH naming this rank and parameter, and the object is revoked; DSC_ERR_NONFINITE naming the
 * unit, on all ranks, if gradients are checked (dsc_comm_set_nonfinite_check()): the iteration ends, and the
 * object keeps working; DSC_ERR_STATE inside a forward or backward pass of dsc_pipe_run(), which changes
 * nothing; DSC_ERR_BUSY; DSC_ERR_BAD_HANDLE; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_finish(dsc_sharded_t* sharded, void* stream);

/**
 * @brief Scales all gradients, returns their 2-norm, and limits it.
 *
 * Every rank sums the squares of its shards in f64, and the sums are added in rank order, so that all ranks
 * get the same bits. A device adds the squares in another order than the host, the same at every call. The
 * gradient shards are multiplied by scale * min(1, max_norm / (norm + 1e-6)), as by
 * dsc_bucket_reducer_clip(). If the norm is NaN or infinite, it is returned and nothing is changed, on all
 * ranks: with loss scaling, skip the step.
 *
 * @param[in] sharded sharded parameters, after dsc_sharded_finish()
 * @param[in] options max_norm and scale, the same on all ranks; shards and counted must be NULL, and norm
 * DSC_NORM_TWO. NULL: defaults, which only compute the norm
 * @param[out] norm the norm of the gradients after they are multiplied by scale and before max_norm limits it
 * @param[in] stream NULL for host memory; on a device, the stream in whose order gradients are read and
 * scaled
 *
 * Collective: yes. Blocking: until all ranks have called it; on a device until the gradients are ready, at
 * most the communicator's time-out. Threads: one at a time per sharded parameters.
 * @return DSC_OK; DSC_ERR_STATE without gradients; DSC_ERR_INVALID_ARG; DSC_ERR_UNSUPPORTED (a stream, or
 * other options); DSC_ERR_MISMATCH when max_norm or scale differ between ranks; DSC_ERR_BUSY;
 * DSC_ERR_BAD_HANDLE; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_clip(dsc_sharded_t* sharded, const dsc_clip_options_t* options, double* norm,
                                      void* stream);

/**
 * @brief Ends a step: says whether the optimizer has changed the shards.
 *
 * In stages 1 and 2 it starts to gather the parameters of all units, in forward order. dsc_sharded_wait()
 * waits for one unit, so that the next forward pass can begin while later units are still being gathered. In
 * stage 3 it releases the unsharded units (with changed 0 they stay) and starts to gather the first units of
 * the next step. If ranks pass different values, the next call that gathers or reduces returns
 * DSC_ERR_MISMATCH.
 *
 * @param[in] sharded sharded parameters, outside of an iteration
 * @param[in] changed 1: the parameter shards have new values; 0: the step was skipped; the same on all ranks
 * @param[in] stream host memory: NULL; a device: the stream on which the optimizer has read and written the
 * shards and the program has read full parameters
 *
 * Collective: yes, every rank calls it at the same point. Blocking: until earlier gathers have completed; on
 * a device no. Threads: one at a time per sharded parameters.
 * @return DSC_OK; DSC_ERR_STATE in an iteration; DSC_ERR_INVALID_ARG; DSC_ERR_UNSUPPORTED (a stream);
 * DSC_ERR_BUSY; DSC_ERR_BAD_HANDLE; DSC_ERR_REVOKED; DSC_ERR_FORKED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_step_done(dsc_sharded_t* sharded, int32_t changed, void* stream);

/**
 * @brief Starts to gather a unit's parameters, and those of the units that followed it in the previous step.
 *
 * In stages 1 and 2 it does nothing. All ranks must unshard and reshard units in the same order.
 *
 * On a device it needs no stream. The gather runs on a stream of the library, which is already ordered after
 * the streams of dsc_sharded_step_done() and dsc_sharded_reshard(): they end the use of the shards and of the
 * memory that the gather takes. dsc_sharded_wait() takes the stream that uses the result.
 *
 * @param[in] sharded sharded parameters
 * @param[in] unit unit
 *
 * Collective: yes. Blocking: no, except when units that were gathered ahead must be released first: then
 * until their gathers have completed. Threads: one at a time per sharded parameters.
 * @return DSC_OK; DSC_ERR_STATE when it is unsharded already, or when max_live_bytes leaves no room (the
 * error names the live units); DSC_ERR_INVALID_ARG; DSC_ERR_NOMEM; DSC_ERR_BUSY; DSC_ERR_BAD_HANDLE;
 * DSC_ERR_REVOKED; DSC_ERR_FORKED; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_unshard(dsc_sharded_t* sharded, size_t unit);

/**
 * @brief Waits for a unit's parameters, after dsc_sharded_step_done() or, in stage 3, after
 * dsc_sharded_unshard().
 * @param[in] sharded sharded parameters
 * @param[in] unit unit
 * @param[in] stream host memory: NULL; a device: the stream waits instead of the host
 *
 * Collective: no, but it waits for a gather that all ranks must start. Blocking: until the parameters are
 * gathered; on a device no. Threads: one at a time per sharded parameters.
 * @return DSC_OK; DSC_ERR_STATE if, in stage 3, the unit is not unsharded; DSC_ERR_INVALID_ARG;
 * DSC_ERR_UNSUPPORTED (a stream); DSC_ERR_BUSY; DSC_ERR_BAD_HANDLE; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_wait(dsc_sharded_t* sharded, size_t unit, void* stream);

/**
 * @brief Releases the memory of a unit's full parameters; in stages 1 and 2 it does nothing.
 *
 * Any later access to their views faults (SIGSEGV) until the unit is unsharded again. On a device nothing
 * faults: other units reuse the memory, in stream order.
 *
 * @param[in] sharded sharded parameters
 * @param[in] unit unit
 * @param[in] stream host memory: NULL; a device: the stream on which the parameters were read
 *
 * Collective: no, but all ranks must unshard and reshard units in the same order. Blocking: until a running
 * gather of the unit has completed; on a device no. Threads: one at a time per sharded parameters.
 * @return DSC_OK; DSC_ERR_STATE for a unit that is not unsharded; DSC_ERR_INVALID_ARG; DSC_ERR_UNSUPPORTED (a
 * stream); DSC_ERR_BUSY; DSC_ERR_BAD_HANDLE; DSC_ERR_REVOKED; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_reshard(dsc_sharded_t* sharded, size_t unit, void* stream);

/**
 * @brief Returns the address of a parameter in its bucket.
 * @param[in] sharded sharded parameters
 * @param[in] index parameter
 * @param[out] view [param_count of param_dtype] contiguous elements; the same address on every call, except
 * that in stage 3 on a device it may change with each dsc_sharded_unshard()
 *
 * The values may be read from dsc_sharded_wait() until the next dsc_sharded_step_done(), in stage 3 until
 * dsc_sharded_reshard(). On a device this means work queued on the streams of these calls between them.
 * Collective: no. Blocking: no. Ownership: the object's; view is valid until the object is destroyed, in
 * stage 3 until the unit is resharded. Threads: any.
 * @return DSC_OK; DSC_ERR_STATE when the parameter's unit is not gathered; DSC_ERR_INVALID_ARG;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_param_view(dsc_sharded_t* sharded, size_t index, void** view);

/**
 * @brief Returns the address of a parameter's full gradient.
 * @param[in] sharded sharded parameters
 * @param[in] index parameter
 * @param[out] view [param_count of view_dtype] elements; the same address on every
 * call
 *
 * A gradient that is computed in its view is not copied. In stages 2 and 3 its unit then takes extra pages
 * instead of the pool's, which costs more than the copy. From begin until it is marked ready, the view
 * belongs to the caller. It holds zeros at first, to which a framework may add, and again once its unit is
 * reduced. On a device, gradients have a permanent address in stage 1 only. Collective: no. Blocking: no.
 * Ownership: the object's; view is valid until the object is destroyed. Threads: any.
 * @return DSC_OK; DSC_ERR_UNSUPPORTED on a device in stages 2 and 3; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_grad_view(dsc_sharded_t* sharded, size_t index, void** view);

/**
 * @brief Writes the location of each parameter, in the form of dsc_shard_plan().
 * @param[in] sharded sharded parameters
 * @param[out] units [n_params] entries: unit of each parameter
 * @param[out] buckets [n_params] entries: its bucket
 * @param[out] starts [n_params] entries: its first element, counted in the bucket
 * @param[out] n_units number of units
 * @param[out] shard which shard this rank owns
 * @param[out] shards [1] number of shards
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_locations(const dsc_sharded_t* sharded, size_t* units, size_t* buckets,
                                           size_t* starts, size_t* n_units, size_t* shard, size_t* shards);

/**
 * @brief Writes this rank's shards of parameters and gradients, one per bucket, in the order of buckets.
 * @param[in] sharded sharded parameters
 * @param[in,out] list the shards; list[0].struct_size must be set; may be NULL with capacity 0
 * @param[in] capacity entries of list
 * @param[out] needed number of shards
 *
 * The addresses stay the same. The optimizer reads grads and writes params between dsc_sharded_finish() and
 * dsc_sharded_step_done(). Collective: no. Blocking: no. Ownership: the object's; the shards are valid until
 * it is destroyed. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_shards(dsc_sharded_t* sharded, dsc_sharded_shard_t* list, size_t capacity,
                                        size_t* needed);

/**
 * @brief Writes the parts of parameters that this rank's shards hold, in the order of the shards.
 * @param[in] sharded sharded parameters
 * @param[in,out] list the parts; list[0].struct_size must be set; may be NULL with capacity 0
 * @param[in] capacity entries of list
 * @param[out] needed number of parts
 *
 * Elements outside these parts are padding, which is zero. Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_ranges(const dsc_sharded_t* sharded, dsc_sharded_range_t* list,
                                        size_t capacity, size_t* needed);

/**
 * @brief Returns the bytes that this rank holds.
 * @param[in] sharded sharded parameters
 * @param[in,out] info struct_size must be set; filled
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_memory_info(const dsc_sharded_t* sharded, dsc_sharded_memory_info_t* info);

/**
 * @brief Writes running totals of the operations of all groups that the object uses, in the form of
 * dsc_comm_stats().
 * @param[in] sharded sharded parameters
 * @param[in,out] stats the totals; stats[0].struct_size must be set; may be NULL with capacity 0
 * @param[in] capacity entries of stats
 * @param[out] needed number of totals
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_stats(const dsc_sharded_t* sharded, dsc_op_stats_t* stats, size_t capacity,
                                       size_t* needed);

/**
 * @brief Ends this rank's participation in sharded parameters but keeps their memory: shards, and views of
 * gathered units, stay readable and writable until dsc_sharded_destroy().
 *
 * For programs that still use shards when they leave, and for bindings whose arrays own the memory. The other
 * ranks get DSC_ERR_PEER_LEFT in the next call that needs this rank. Afterwards every call on the object
 * returns DSC_ERR_STATE, except this one, which does nothing, and dsc_sharded_destroy().
 *
 * @param[in] sharded sharded parameters
 *
 * Collective: no. Blocking: until running gathers of parameters have completed, at most two seconds; other
 * running operations are revoked on all ranks. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_close(dsc_sharded_t* sharded);

/**
 * @brief Releases sharded parameters; closes them first if they are open (dsc_sharded_close()).
 * @param[in] sharded sharded parameters; NULL does nothing
 *
 * Collective: no. Blocking: as dsc_sharded_close(). Views and shards are invalid afterwards, also for work
 * still queued on streams. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_sharded_destroy(dsc_sharded_t* sharded);

#ifdef __cplusplus
}
#endif

#endif /* DSC_SHARDED_H */
