/**
 * @file pipe_run.h
 * @brief Carries out a pipeline schedule: callbacks compute, and the library sends and receives between them.
 */
#ifndef DSC_PIPE_RUN_H
#define DSC_PIPE_RUN_H

#include <dsc/pipe.h>
#include <dsc/tensor.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief What a callback of dsc_pipe_run() is given. Arrays have one pointer per tensor of the run's
 * options. */
typedef struct dsc_pipe_call {
  size_t struct_size;                        /**< size of this struct as the library compiled it */
  const dsc_pipe_instruction_t* instruction; /**< what is asked for */
  void* const* inputs;  /**< activations from the previous part of the model; NULL for the first part and
                           outside of passes */
  void* const* outputs; /**< forward writes activations for the next part; NULL for the last part and outside
                           of passes */
  void* const* output_grads; /**< gradients of outputs, for backward to read; NULL where outputs is. An entry
                                is NULL for a tensor of an integer type, which has no gradient */
  void* const*
      input_grads; /**< backward writes gradients of inputs; NULL where inputs is, entries as above */
  double* loss;    /**< forward of the last part writes the micro-batch's loss; else NULL */
  const dsc_tensor_t* input_tensors; /**< n_inputs entries: what inputs points to, with the micro-batch's
                                        shapes, which input_grads has as well; NULL where inputs is */
  const dsc_tensor_t*
      output_tensors; /**< n_outputs entries: the same of outputs and output_grads; in forward, whatever it
                         writes, with the shapes of the options; NULL where outputs is */
  int64_t* const* output_shapes; /**< with variable shapes forward may write the sizes of output i to
                                    output_shapes[i] before it returns, as many as the options' shape has;
                                    unwritten they are those. Else NULL */
  char* error;      /**< where the callback may say why it fails, ended by a zero: that becomes part of the
                       error on every rank */
  size_t n_inputs;  /**< entries of inputs, input_grads and input_tensors; 0 where inputs is NULL */
  size_t n_outputs; /**< entries of outputs, output_grads and output_tensors; 0 where outputs is NULL */
  size_t error_capacity; /**< bytes at error, the final zero included */
} dsc_pipe_call_t;

/**
 * @brief Carries out one instruction: returns 0, or another number to end the run on all ranks, with words
 * in call->error if it has any.
 *
 * Runs on the thread that called dsc_pipe_run(). Memory that call points to is the library's, or that of the
 * options: inputs, outputs and their gradients stay as they are from forward to the end of the backward pass
 * of that micro-batch, and no longer. A C++ exception counts as a failure. It may call the library, except on
 * the communicator and the schedule of the run.
 */
typedef int32_t (*dsc_pipe_fn)(void* context, const dsc_pipe_call_t* call);

/** @brief What a run calls. The passes that its schedule has must be there; of the others NULL means that
 * there is nothing to do. Fill with dsc_pipe_callbacks_init(). */
typedef struct dsc_pipe_callbacks {
  size_t struct_size;            /**< size of this struct as the caller compiled it */
  void* context;                 /**< handed to every callback */
  dsc_pipe_fn load_micro_batch;  /**< inputs on the first stage, labels on the last */
  dsc_pipe_fn forward;           /**< from inputs to outputs or loss */
  dsc_pipe_fn backward;          /**< from output_grads to input_grads; adds up gradients of weights */
  dsc_pipe_fn backward_input;    /**< the first half of a split backward pass */
  dsc_pipe_fn backward_weight;   /**< its second half */
  dsc_pipe_fn reduce_tied_grads; /**< for example a sum over the stages that share weights */
  dsc_pipe_fn reduce_grads;      /**< for example dsc_bucket_reducer_finish() */
  dsc_pipe_fn optimizer_step;    /**< updates the weights */
} dsc_pipe_callbacks_t;

/** @brief Shapes of one micro-batch at the two ends of a stage. Fill with dsc_pipe_run_options_init(). */
typedef struct dsc_pipe_run_options {
  size_t struct_size;          /**< size of this struct as the caller compiled it */
  const dsc_tensor_t* inputs;  /**< what the previous stage sends, data unused; NULL on the first stage */
  const dsc_tensor_t* outputs; /**< what the next stage receives, data unused; NULL on the last stage */
  void* stream; /**< with tensors on a device: the stream on which callbacks put their work; NULL: the default
                   stream */
  void* memory; /**< for activations and gradients, where the tensors are; of any alignment. NULL (default):
                   the library allocates it and keeps it with the schedule */
  size_t n_inputs;         /**< entries of inputs; 0 on the first stage, else 1 or more */
  size_t n_outputs;        /**< entries of outputs; 0 on the last stage, else 1 or more */
  size_t memory_bytes;     /**< size of memory in bytes: dsc_pipe_run_bytes() or more */
  int32_t variable_shapes; /**< 1: inputs and outputs are the largest ones, and every forward pass says what
                              its outputs have; 0 (default): all micro-batches have these */
  int32_t
      keep_replaced; /**< 1: memory of earlier runs that this one replaces, because shapes have grown on any
                        rank, stays readable until the schedule is destroyed; 0 (default): it is freed */
} dsc_pipe_run_options_t;

/**
 * @brief Fills a table of callbacks with NULL.
 * @param[out] callbacks the struct to fill
 * @param[in] struct_size sizeof(dsc_pipe_callbacks_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_callbacks_init(dsc_pipe_callbacks_t* callbacks, size_t struct_size);

/**
 * @brief Fills run options with their defaults: no inputs and no outputs, as a pipeline of one stage has.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_pipe_run_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_run_options_init(dsc_pipe_run_options_t* options, size_t struct_size);

/**
 * @brief Tells how much memory a run takes on this rank, for options->memory.
 * @param[in] schedule the stage's schedule; its position becomes the start
 * @param[in] options shapes of the run; NULL for a pipeline of one stage
 * @param[out] bytes size of options->memory at any address; 0 where nothing is exchanged
 *
 * Collective: no. Blocking: no. Threads: one at a time per schedule.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for options that do not fit the stage; DSC_ERR_OVERFLOW;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; DSC_ERR_STATE for a schedule of the whole pipeline; DSC_ERR_NOMEM;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_run_bytes(dsc_pipe_schedule_t* schedule, const dsc_pipe_run_options_t* options,
                                        size_t* bytes);

/**
 * @brief Runs a schedule from its first to its last instruction: calls the callbacks, and sends and receives
 * activations and gradients between them.
 *
 * Rank s of comm is stage s. Activations and gradients travel on a channel each: groups of comm's ranks, made
 * together with the buffers, in shared memory, by the first run of a schedule on a communicator. Later runs
 * of that schedule on that communicator use them again; on another one, or with larger tensors, they are made
 * anew. Every rank allocates as many bytes as the rank that needs most, unless all ranks hand in memory of
 * their own, which may be another one in every run. All tensors of one end of a stage are one message.
 *
 * With variable shapes each forward pass may say that its outputs are smaller, down to no elements at all. A
 * header of 24 bytes and 8 + 8 x ndim bytes per tensor goes ahead of the activations (magic, version, number
 * of the message, micro-batch, part of the model; type and sizes of each tensor) in host memory, and is
 * compared with what its receiver expects; then each tensor that is not empty is a message. Gradients have
 * the shapes of their activations and travel without a header. This also serves chunks whose ends differ.
 *
 * With tensors on the device that comm is bound to, buffers lie there and messages go by NCCL, each on a
 * stream of its own: what a callback puts on the options' stream has its inputs, and is waited for before its
 * outputs are sent. The call then returns when all is on the streams; what comes on that stream afterwards is
 * behind the run. A message that fails later is told by the next run of the schedule, which revokes comm
 * then.
 *
 * Before the first callback all ranks compare schedules, shapes and how the options have them (variable, in
 * memory of the caller's), as they are described: a tensor without a shape differs from one with a shape.
 * What does not fit, or is wrong on one rank, is the same error on all ranks; nothing has happened then, and
 * comm keeps working. A failure after that (a callback, a message, memory, a rank that dies) revokes comm,
 * and every rank returns the first cause.
 *
 * If any rank asks for the mean loss, all ranks meet at the end in an all-reduce. If all pass NULL there is
 * none: each rank returns when it has done its own part, and a failure of another rank after that is returned
 * by its next operation on comm.
 *
 * @param[in] schedule the stage's schedule; its position becomes the end
 * @param[in] comm communicator of the pipeline's stages
 * @param[in] callbacks what to call; used during the call only
 * @param[in] options shapes; NULL for a pipeline of one stage
 * @param[out] mean_loss mean of what the last stage's forward passes wrote, the same on all ranks that ask
 * for it; may be NULL, also on some ranks only
 *
 * Collective: yes. Blocking: until all stages have run, or this one if all ranks pass NULL for mean_loss; on
 * devices until all is on their streams. Each message has the communicator's time-out. Ownership: everything
 * that is passed in must live until it returns, options->memory on a device until the run has ended there
 * (after a run that failed: until the schedule is destroyed). Threads: one at a time per communicator and
 * schedule; dsc_comm_abort() from any thread ends it.
 * @return DSC_OK; DSC_ERR_INVALID_ARG naming the instruction when a callback that the schedule needs is
 * missing, and for options that do not fit the stage; DSC_ERR_MISMATCH when stages disagree about the
 * schedule or a shape; DSC_ERR_CALLBACK naming rank and instruction, also for an output larger than the
 * options say; DSC_ERR_NOSPACE, DSC_ERR_NOMEM and DSC_ERR_SYSTEM when channels or memory cannot be made;
 * DSC_ERR_BAD_HANDLE and DSC_ERR_BUSY, on this rank alone; and the failures of an operation
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_run(dsc_pipe_schedule_t* schedule, dsc_comm_t* comm,
                                  const dsc_pipe_callbacks_t* callbacks,
                                  const dsc_pipe_run_options_t* options, double* mean_loss);

#ifdef __cplusplus
}
#endif

#endif /* DSC_PIPE_RUN_H */
