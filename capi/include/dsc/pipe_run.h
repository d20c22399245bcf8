/**
 * @file pipe_run.h
 * @brief Runs a pipeline schedule: callbacks compute, and the library sends and receives between them.
 */
#ifndef DSC_PIPE_RUN_H
#define DSC_PIPE_RUN_H

#include <dsc/pipe.h>
#include <dsc/tensor.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief The arguments of a callback of dsc_pipe_run(). Arrays have one pointer per tensor of the run's
 * options. */
typedef struct dsc_pipe_call {
  size_t struct_size;                        /**< size of this struct as the library compiled it */
  const dsc_pipe_instruction_t* instruction; /**< the instruction to run */
  void* const* inputs;  /**< [in n_inputs] activations from the previous part of the model; NULL in the first
                           part and in instructions that compute no pass */
  void* const* outputs; /**< [out n_outputs] forward writes activations for the next part of the model; NULL
                           in the last part and in instructions that compute no pass */
  void* const*
      output_grads; /**< [in n_outputs] backward reads the gradients of outputs; NULL if outputs is NULL. An
                       entry is NULL for a tensor of an integer type, which has no gradient */
  void* const* input_grads; /**< [out n_inputs] backward writes the gradients of inputs; NULL if inputs is
                               NULL. An entry is NULL for a tensor of an integer type */
  double* loss; /**< [out 1] forward of the last part writes the loss of the micro-batch here; NULL in other
                   instructions */
  const dsc_tensor_t* input_tensors; /**< [n_inputs] entries, which describe inputs[i] with the shapes of this
                                        micro-batch. They describe input_grads[i] too. NULL if inputs is
                                        NULL */
  const dsc_tensor_t* output_tensors; /**< [n_outputs] entries, which describe outputs[i] and output_grads[i].
                                         In forward they have the shapes of the options. NULL if outputs is
                                         NULL */
  int64_t* const* output_shapes; /**< [inout n_outputs] with variable shapes, forward may write the sizes of
                                    output i to output_shapes[i], as many as its shape in the options has. The
                                    initial values are those of the options. NULL without variable shapes */
  char* error; /**< [out error_capacity] a callback that fails may write the reason here, ended by a zero; it
                  becomes part of the error on every rank */
  size_t n_inputs;       /**< entries of inputs, input_grads and input_tensors; 0 if inputs is NULL */
  size_t n_outputs;      /**< entries of outputs, output_grads and output_tensors; 0 if outputs is NULL */
  size_t error_capacity; /**< bytes at error, the final zero included */
} dsc_pipe_call_t;

/**
 * @brief Runs one instruction.
 * @param[in] context that of dsc_pipe_callbacks_t
 * @param[in] call [1] the instruction and its tensors
 *
 * The memory that call points to belongs to the library, or is the memory of the options. Inputs, outputs and
 * their gradients are kept from forward to the end of the backward pass of that micro-batch, and no longer. A
 * C++ exception counts as a failure. Threads: the calling thread of dsc_pipe_run(). May call: any function,
 * but not on the communicator and the schedule of the run.
 * @return 0, or another number to end the run on all ranks; the callback may then write the reason to
 * call->error
 */
typedef int32_t (*dsc_pipe_fn)(void* context, const dsc_pipe_call_t* call);

/** @brief The callbacks of a run. Set one for every kind of pass in the schedule; any other may be NULL,
 * which means "do nothing". Fill with dsc_pipe_callbacks_init(). */
typedef struct dsc_pipe_callbacks {
  size_t struct_size;           /**< size of this struct as the caller compiled it */
  void* context;                /**< passed to every callback */
  dsc_pipe_fn load_micro_batch; /**< loads inputs on the first stage, labels on the last; NULL: do nothing */
  dsc_pipe_fn forward;  /**< from inputs to outputs or loss; NULL only if the schedule has no such pass */
  dsc_pipe_fn backward; /**< from output_grads to input_grads; adds up gradients of weights; NULL only if the
                           schedule has no such pass */
  dsc_pipe_fn backward_input;  /**< the first half of a split backward pass; NULL only if the schedule has no
                                  such pass */
  dsc_pipe_fn backward_weight; /**< its second half; NULL only if the schedule has no such pass */
  dsc_pipe_fn
      reduce_tied_grads;      /**< for example a sum over the stages that share weights; NULL: do nothing */
  dsc_pipe_fn reduce_grads;   /**< for example dsc_bucket_reducer_finish(); NULL: do nothing */
  dsc_pipe_fn optimizer_step; /**< updates the weights; NULL: do nothing */
} dsc_pipe_callbacks_t;

/** @brief Shapes of one micro-batch at the two ends of a stage. Fill with dsc_pipe_run_options_init(). */
typedef struct dsc_pipe_run_options {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  const dsc_tensor_t*
      inputs; /**< [n_inputs] tensors from the previous stage, data unused; NULL on the first stage */
  const dsc_tensor_t*
      outputs;     /**< [n_outputs] tensors for the next stage, data unused; NULL on the last stage */
  void* stream;    /**< with tensors on a device: the stream on which callbacks queue their work; NULL: the
                      default stream */
  void* memory;    /**< [inout memory_bytes of byte] memory for activations and gradients, of the same kind as
                      the tensors, with any alignment. On a device it must stay valid until the run has ended
                      there, and    after a failed run until the schedule is destroyed. NULL (default): the
                      library    allocates    it and keeps it with the schedule */
  size_t n_inputs; /**< entries of inputs; 0 on the first stage, else 1 or more */
  size_t n_outputs;        /**< entries of outputs; 0 on the last stage, else 1 or more */
  size_t memory_bytes;     /**< size of memory in bytes: dsc_pipe_run_bytes() or more */
  int32_t variable_shapes; /**< 1: inputs and outputs give the largest shapes, and every forward pass sets the
                              shapes of its outputs; 0 (default): all micro-batches have the same shapes */
  int32_t keep_replaced; /**< 1: memory of earlier runs, replaced because shapes have grown on any rank, stays
                            readable until the schedule is destroyed; 0 (default): it is freed */
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
 * @brief Fills run options with their defaults: no inputs and no outputs, as for a pipeline of one stage.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_pipe_run_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_run_options_init(dsc_pipe_run_options_t* options, size_t struct_size);

/**
 * @brief Returns how much memory a run needs on this rank, for options->memory.
 * @param[in] schedule the stage's schedule; it is reset to its first instruction
 * @param[in] options shapes of the run; NULL for a pipeline of one stage
 * @param[out] bytes size for options->memory at any address; 0 if nothing is exchanged
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
 * Rank s of comm is stage s. Activations and gradients use one channel each, which is a group of comm's
 * ranks. The first run of a schedule on a communicator creates the channels, and the buffers in shared
 * memory. Later runs of that schedule on that communicator reuse them; another communicator or larger tensors
 * need new ones. Every rank allocates as many bytes as the rank that needs most, unless all ranks pass
 * options->memory, which may differ in every run. All tensors at one end of a stage are one message.
 *
 * With variable shapes each forward pass may report smaller outputs, down to no elements. A header in host
 * memory is then sent before the activations. It has 24 bytes (magic, version, number of the message,
 * micro-batch, part of the model) and 8 + 8 x ndim bytes per tensor (type and sizes). The receiver compares
 * it with what it expects. After the header each tensor that is not empty is a message. Gradients have the
 * shapes of their activations and no header. This also works for chunks with different shapes at their ends.
 *
 * With tensors on the device that comm is bound to, the buffers are on the device, and NCCL carries the
 * messages, each on a separate stream. Work that a callback queues on the options' stream runs when its
 * inputs have arrived, and its outputs are sent when it has completed. The call returns when everything is
 * queued on the streams; work queued on the options' stream afterwards is ordered after the run. If a message
 * fails later, the next run of the schedule reports it and revokes comm.
 *
 * Before the first callback all ranks compare their schedules, shapes and options (variable shapes, memory).
 * Descriptions must be equal: a tensor without a shape differs from one with a shape. If ranks differ, or one
 * rank passes a wrong argument, all ranks return the same error; nothing has happened, and comm keeps
 * working. A later failure (a callback, a message, memory, a rank that dies) revokes comm, and every rank
 * returns the first cause.
 *
 * If any rank asks for the mean loss, all ranks take part in an all-reduce at the end. If all pass NULL, each
 * rank returns when it has done its own part; if another rank fails after that, the next operation on comm
 * returns the failure.
 *
 * @param[in] schedule the stage's schedule; afterwards it is at its end
 * @param[in] comm communicator of the pipeline's stages
 * @param[in] callbacks the callbacks; used during the call only
 * @param[in] options shapes; NULL for a pipeline of one stage
 * @param[out] mean_loss mean of the losses that the last stage's forward passes wrote, the same on all ranks
 * that ask for it; may be NULL on some or all ranks
 *
 * Collective: yes. Blocking: until all stages have run, or only this one if all ranks pass NULL for
 * mean_loss; on devices until everything is queued on the streams. Each message has the communicator's
 * time-out. Ownership: all arguments must stay valid until the call returns; options->memory on a device
 * until the run has ended there (after a failed run: until the schedule is destroyed). Threads: one at a time
 * per communicator and schedule; dsc_comm_abort() from any thread ends it.
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
