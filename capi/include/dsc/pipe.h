/**
 * @file pipe.h
 * @brief Pipeline schedules: which stage computes, sends and receives what, in which order.
 *
 * A model is cut into stages, one per rank. A batch is cut into micro-batches. A schedule is the list of
 * instructions of one stage for one batch; it is plain data and needs no communicator. dsc_pipe_run() carries
 * it out; another program may do so as well.
 */
#ifndef DSC_PIPE_H
#define DSC_PIPE_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief What an instruction asks for. */
enum dsc_pipe_op {
  DSC_PIPE_LOAD_MICRO_BATCH = 1,   /**< load inputs (first stage) or labels (last stage) */
  DSC_PIPE_FORWARD = 2,            /**< forward pass of one micro-batch */
  DSC_PIPE_BACKWARD = 3,           /**< backward pass of one micro-batch */
  DSC_PIPE_BACKWARD_INPUT = 4,     /**< the part of a backward pass that gives gradients of the inputs */
  DSC_PIPE_BACKWARD_WEIGHT = 5,    /**< the part of a backward pass that gives gradients of the weights */
  DSC_PIPE_SEND_ACTIVATION = 6,    /**< send the outputs to the next stage */
  DSC_PIPE_RECV_ACTIVATION = 7,    /**< receive the inputs from the previous stage */
  DSC_PIPE_SEND_GRAD = 8,          /**< send the gradients of the inputs to the previous stage */
  DSC_PIPE_RECV_GRAD = 9,          /**< receive the gradients of the outputs from the next stage */
  DSC_PIPE_REDUCE_TIED_GRADS = 10, /**< sum the gradients of weights that several stages share */
  DSC_PIPE_REDUCE_GRADS = 11,      /**< reduce gradients over the data-parallel ranks */
  DSC_PIPE_OPTIMIZER_STEP = 12,    /**< update the weights */
  DSC_PIPE_OVERLAP = 13,           /**< a forward and a backward pass at once */
  DSC_PIPE_FORCE32 = 0x7fffffff
};

/** @brief A schedule of one stage. Thread-safety: one thread at a time for next, reset
 * and run; any thread for the rest. Different schedules are independent. */
typedef struct dsc_pipe_schedule dsc_pipe_schedule_t;

/** @brief One instruction. Fields that have no meaning for its op are -1. */
typedef struct dsc_pipe_instruction {
  size_t struct_size;  /**< size of this struct as the caller compiled it */
  int64_t step;        /**< 0 to steps - 1, never falling */
  int32_t op;          /**< ::dsc_pipe_op */
  int32_t micro_batch; /**< 0 to micro_batches - 1 */
  int32_t chunk;       /**< part of the model on this stage, 0 to chunks - 1 */
  int32_t buffer;      /**< place that holds the micro-batch here, 0 to buffers - 1 */
  int32_t peer;        /**< stage at the other end of a send or receive */
  int32_t reserved;    /**< 0 */
} dsc_pipe_instruction_t;

/** @brief What a schedule is for. Fill with dsc_pipe_schedule_options_init(). */
typedef struct dsc_pipe_schedule_options {
  size_t struct_size;    /**< size of this struct as the caller compiled it */
  const char* name;      /**< see dsc_pipe_schedule_create() */
  int32_t stages;        /**< devices of the pipeline, 1 or more */
  int32_t stage;         /**< whose instructions: 0 to stages - 1 */
  int32_t micro_batches; /**< of a batch, 1 or more; may be fewer than stages */
  int32_t chunks;        /**< parts of the model on every stage; default 1 */
} dsc_pipe_schedule_options_t;

/**
 * @brief Gives the name of an instruction's op, such as "forward" or "send_activation".
 * @param[in] op any value
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return a static string; "unknown" for a value that is no op
 * @since 0.1
 */
DSC_API const char* dsc_pipe_op_name(int32_t op);

/**
 * @brief Fills schedule options with their defaults: one chunk, and everything else yet to be set.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_pipe_schedule_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_options_init(dsc_pipe_schedule_options_t* options, size_t struct_size);

/**
 * @brief Makes the schedule of one stage.
 *
 * Names, in small letters:
 * - "deepspeed_train": one forward and one backward pass in turn, a step per slot of a common clock;
 * instruction for instruction DeepSpeed's TrainSchedule (deepspeed/runtime/pipe/schedule.py, commit edaa722).
 * - "deepspeed_inference": forward passes only, two buffers; DeepSpeed's InferenceSchedule.
 * - "data_parallel": every stage holds the whole model; DeepSpeed's DataParallelSchedule.
 * - "gpipe": all forward passes, then all backward passes (Huang et al. 2019, arXiv:1811.06965).
 * - "1f1b": min(stages - 1 - stage, micro_batches) forward passes, then forward and backward in turn, then
 * the backward passes that are left (Narayanan et al. 2021, arXiv:2104.04473; Megatron-LM, commit d98e8a6).
 *
 * For the last two a step is one forward or backward pass of this stage, with the sends and receives before
 * it; sends and receives of all stages follow one common order, so that they complete even when every send
 * waits for its receive.
 *
 * @param[in] options name, stages, stage, micro_batches, chunks; all schedules above take 1 chunk
 * @param[out] schedule the new schedule, at its first instruction; NULL on failure
 *
 * Collective: no. Blocking: no. Ownership: options are copied. Threads: any.
 * Cost: none for the first three. For the last two time grows with stages times micro_batches (about 0.1
 * microseconds each, so up to seconds), and memory with the instructions of this stage.
 * @return DSC_OK; DSC_ERR_INVALID_ARG (also for an unknown name, which lists the known ones);
 * DSC_ERR_UNSUPPORTED for a schedule that this version does not offer; DSC_ERR_OVERFLOW when the last two
 * are asked for more than 2^24 micro-batches times stages; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_create(const dsc_pipe_schedule_options_t* options,
                                              dsc_pipe_schedule_t** schedule);

/**
 * @brief Gives the next instruction.
 * @param[in] schedule schedule
 * @param[in,out] instruction struct_size must be set; written unless the schedule is at its end
 *
 * Collective: no. Blocking: no. Threads: one at a time per schedule.
 * @return DSC_OK; DSC_DONE after the last one; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_next(dsc_pipe_schedule_t* schedule,
                                            dsc_pipe_instruction_t* instruction);

/**
 * @brief Goes back to the first instruction.
 * @param[in] schedule schedule
 *
 * Collective: no. Blocking: no. Threads: one at a time per schedule.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_reset(dsc_pipe_schedule_t* schedule);

/**
 * @brief Gives the number of steps.
 * @param[in] schedule schedule
 * @param[out] steps 1 or more
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_steps(dsc_pipe_schedule_t* schedule, int64_t* steps);

/**
 * @brief Says what a step computes.
 * @param[in] schedule schedule
 * @param[in] step 0 to steps - 1
 * @param[out] micro_batch the micro-batch; -1 when this stage computes nothing in this step
 * @param[out] is_forward 1: a forward pass (and "data_parallel", whose steps do both); 0: a backward pass.
 * Also told for a step that computes nothing
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_step(dsc_pipe_schedule_t* schedule, int64_t step, int32_t* micro_batch,
                                            int32_t* is_forward);

/**
 * @brief Gives the number of micro-batches that this stage must be able to hold at once.
 * @param[in] schedule schedule
 * @param[out] buffers 1 or more
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_buffers(dsc_pipe_schedule_t* schedule, int32_t* buffers);

/**
 * @brief Releases a schedule, with the memory and channels that dsc_pipe_run() made for it.
 * @param[in] schedule schedule; NULL does nothing
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_destroy(dsc_pipe_schedule_t* schedule);

#ifdef __cplusplus
}
#endif

#endif /* DSC_PIPE_H */
