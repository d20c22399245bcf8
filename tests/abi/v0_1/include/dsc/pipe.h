/**
 * @file pipe.h
 * @brief Pipeline schedules: what each stage computes, sends and receives, and in which order.
 *
 * A model is cut into stages, one per rank, or into several chunks per stage. A batch is cut into
 * micro-batches. A schedule defines the order in which each stage computes; lowering adds loads, sends,
 * receives and buffers. A schedule is plain data and needs no communicator. dsc_pipe_run() runs it,
 * dsc_pipe_simulate() computes its cost, and dsc_pipe_schedule_export() writes it as text.
 */
#ifndef DSC_PIPE_H
#define DSC_PIPE_H

#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief What an instruction asks for. */
typedef int32_t dsc_pipe_op_t;

/** @brief Values of ::dsc_pipe_op_t. */
enum dsc_pipe_op {
  DSC_PIPE_OP_LOAD_MICRO_BATCH = 1, /**< load inputs (first stage) or labels (last stage) */
  DSC_PIPE_OP_FORWARD = 2,          /**< forward pass of one micro-batch */
  DSC_PIPE_OP_BACKWARD = 3,         /**< backward pass of one micro-batch */
  DSC_PIPE_OP_BACKWARD_INPUT = 4,   /**< the part of a backward pass that computes gradients of the inputs */
  DSC_PIPE_OP_BACKWARD_WEIGHT = 5,  /**< the part of a backward pass that computes gradients of the weights */
  DSC_PIPE_OP_SEND_ACTIVATION = 6,  /**< send the outputs to the next stage */
  DSC_PIPE_OP_RECV_ACTIVATION = 7,  /**< receive the inputs from the previous stage */
  DSC_PIPE_OP_SEND_GRAD = 8,        /**< send the gradients of the inputs to the previous stage */
  DSC_PIPE_OP_RECV_GRAD = 9,        /**< receive the gradients of the outputs from the next stage */
  DSC_PIPE_OP_REDUCE_TIED_GRADS = 10, /**< sum the gradients of weights that stages share */
  DSC_PIPE_OP_REDUCE_GRADS = 11,      /**< reduce gradients over the data-parallel ranks */
  DSC_PIPE_OP_OPTIMIZER_STEP = 12,    /**< update the weights */
  DSC_PIPE_OP_OVERLAP = 13,           /**< a forward and a backward pass at the same time */
  DSC_PIPE_OP_FORCE32 = 0x7fffffff
};

/** @brief Assigns the parts of a model to the stages. Data flows through parts 0, 1, 2 ...; s stages with c
 * chunks have s x c parts. */
typedef int32_t dsc_pipe_placement_t;

/** @brief Values of ::dsc_pipe_placement_t. */
enum dsc_pipe_placement {
  DSC_PIPE_PLACEMENT_LOOP = 0,   /**< part p is on stage p modulo the number of stages */
  DSC_PIPE_PLACEMENT_ZIGZAG = 1, /**< from the first stage to the last, then back: two chunks make a V */
  DSC_PIPE_PLACEMENT_APART = 2,  /**< every stage has a whole model; stages exchange no data */
  DSC_PIPE_PLACEMENT_FORCE32 = 0x7fffffff
};

/** @brief Where lowering puts messages. Both ways complete even if every send waits for its receive. */
typedef int32_t dsc_pipe_messages_t;

/** @brief Values of ::dsc_pipe_messages_t. */
enum dsc_pipe_messages {
  DSC_PIPE_MESSAGES_WHEN_NEEDED = 0, /**< just before the receiver needs them: fewest buffers */
  DSC_PIPE_MESSAGES_AT_ONCE = 1,     /**< sent and received as soon as they are computed, as in PyTorch 2.7 */
  DSC_PIPE_MESSAGES_FORCE32 = 0x7fffffff
};

/** @brief A schedule, of one stage or of the whole pipeline. Thread-safety: one thread at a time for next,
 * reset and run; any thread for the rest. Different schedules are independent. */
typedef struct dsc_pipe_schedule dsc_pipe_schedule_t;

/** @brief One instruction. Fields that do not apply to its op are -1. */
typedef struct dsc_pipe_instruction {
  size_t struct_size;  /**< size of this struct as the caller compiled it */
  int64_t step;        /**< 0 to steps - 1, never decreasing */
  dsc_pipe_op_t op;    /**< the operation */
  int32_t micro_batch; /**< 0 to micro_batches - 1 */
  int32_t chunk;       /**< part of the model on this stage, 0 to chunks - 1 */
  int32_t buffer;      /**< buffer that holds the micro-batch on this stage, 0 to buffers - 1 */
  int32_t peer;        /**< stage at the other end of a send or receive */
  int32_t reserved;    /**< 0 */
} dsc_pipe_instruction_t;

/** @brief Options of a schedule. Fill with dsc_pipe_schedule_options_init(). */
typedef struct dsc_pipe_schedule_options {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  const char* name;   /**< see dsc_pipe_schedule_create(); may be NULL in other calls */
  int32_t stages;     /**< devices of the pipeline, 1 or more */
  int32_t stage; /**< stage whose instructions are made, 0 to stages - 1; -1: the whole pipeline, which has no
                    instructions but can be simulated, drawn, exported and split into stages */
  int32_t micro_batches;     /**< of a batch, 1 or more; may be fewer than stages */
  int32_t chunks;            /**< parts of the model on every stage; default 0: the schedule's default */
  int32_t micro_batch_group; /**< interleaved_1f1b: micro-batches that run through one chunk before the next
                                one starts; default 0: micro_batches / max(1, micro_batches / stages) in
                                integers, as in PyTorch. That is stages if stages divides micro_batches */
  int32_t forward_only;      /**< 1: without backward passes; default 0 */
  int32_t merge_backward;    /**< 1: adjacent halves of a backward pass become one; default 0 */
  dsc_pipe_messages_t messages;   /**< default DSC_PIPE_MESSAGES_WHEN_NEEDED */
  dsc_pipe_placement_t placement; /**< for dsc_pipe_schedule_create_custom() only; default 0 */
  int32_t reserved;               /**< 0 */
} dsc_pipe_schedule_options_t;

/** @brief The properties of a schedule. */
typedef struct dsc_pipe_schedule_info_t {
  size_t struct_size;             /**< size of this struct as the caller compiled it */
  int32_t stages;                 /**< devices of the pipeline */
  int32_t stage;                  /**< stage of the instructions; -1: the whole pipeline */
  int32_t micro_batches;          /**< of a batch */
  int32_t chunks;                 /**< parts of the model on every stage */
  int32_t micro_batch_group;      /**< interleaved_1f1b: the value in effect, see the options; 0: another
                                     schedule */
  int32_t forward_only;           /**< 1: without backward passes */
  dsc_pipe_messages_t messages;   /**< where lowering put messages */
  dsc_pipe_placement_t placement; /**< which stage has which part of the model */
} dsc_pipe_schedule_info_t;

/** @brief One operation of a stage. */
typedef struct dsc_pipe_compute {
  dsc_pipe_op_t op;    /**< a forward or backward pass, or half of one; 0: idle for a step */
  int32_t chunk;       /**< 0 to chunks - 1; -1 when idle */
  int32_t micro_batch; /**< 0 to micro_batches - 1; -1 when idle */
  int32_t overlaps;    /**< 1: it runs together with the next one (a forward and a backward pass); else 0 */
} dsc_pipe_compute_t;

/**
 * @brief Returns the name of an instruction's op, such as "forward" or "send_activation".
 * @param[in] op any value
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return a static string; "unknown" for a value that is not an op
 * @since 0.1
 */
DSC_API const char* dsc_pipe_op_name(dsc_pipe_op_t op);

/**
 * @brief Fills schedule options with their defaults. name, stages and micro_batches have no defaults and must
 * be set; stage is 0.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_pipe_schedule_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_options_init(dsc_pipe_schedule_options_t* options, size_t struct_size);

/**
 * @brief Creates the schedule of one stage, or of the whole pipeline.
 *
 * Names, in lower case:
 * - "deepspeed_train": forward and backward passes in turn, one step per slot of a common clock; the same
 * instructions as DeepSpeed's TrainSchedule (deepspeed/runtime/pipe/schedule.py, commit edaa722).
 * - "deepspeed_inference": forward passes only, two buffers; DeepSpeed's InferenceSchedule.
 * - "data_parallel": every stage holds the whole model; DeepSpeed's DataParallelSchedule.
 * - "gpipe": all forward passes, then all backward passes (Huang et al. 2019, arXiv:1811.06965).
 * - "1f1b": min(stages - 1 - stage, micro_batches) forward passes, then forward and backward in turn, then
 * the remaining backward passes (Narayanan et al. 2021, arXiv:2104.04473; Megatron-LM, commit d98e8a6).
 * - "interleaved_1f1b": several chunks; groups of micro-batches run through them in turn (the same paper;
 * Megatron-LM; also PyTorch 2.7's Interleaved1F1B, with groups of micro_batches / (micro_batches / stages)).
 * - "looped_bfs": several chunks, one after the other; backward passes start with the last micro-batch
 * (Lamy-Poirier 2023, arXiv:2211.05953; PyTorch 2.7's LoopedBFS).
 * - "zb_h1", "zb_h2": split backward passes; zb_h2 removes all bubbles at the cost of about twice the
 * activations (Qi et al. 2024, arXiv:2401.10241).
 * - "zb_v": the same with two chunks in a V and the activations of 1f1b (PyTorch 2.7's ZBVZeroBubble).
 * - "v_half", "v_min": a V with about a half or a third of the activations of 1f1b (Qi et al. 2024,
 * arXiv:2405.15362; sail-sg/zero-bubble-pipeline-parallelism, commit 39f2c18).
 * - "dualpipe_v": a V in which forward and backward passes run at the same time (DeepSeek's DualPipe, cut in
 * half; PyTorch's ScheduleDualPipeV); needs micro_batches of at least 2 x stages.
 * - "auto": the schedule that dsc_pipe_search() finds for equal costs and without limits.
 *
 * All but the first three are lowered: a step is one operation of this stage, or two at the same time (after
 * an instruction "overlap"), preceded by its sends and receives. Sends and receives of all stages follow one
 * common order, so that they complete even if every send waits for its receive.
 *
 * @param[in] options the schedule to create. chunks is 1 for schedules without chunks, 2 for schedules in a
 * V, and 1 or more for interleaved_1f1b and looped_bfs (default 2)
 * @param[out] schedule the new schedule, at its first instruction; NULL on failure
 *
 * Collective: no. Blocking: no. Ownership: options are copied; the caller releases the schedule with
 * dsc_pipe_schedule_destroy(). Threads: any.
 *
 * Cost: constant for "deepspeed_train", "deepspeed_inference" and "data_parallel". For the others, if stage
 * is not -1, time grows with stages x chunks x micro-batches (about 0.1 microseconds each, so up to seconds),
 * and memory with the instructions of this stage. v_half, v_min and schedules with merge_backward store their
 * order, 16 bytes per operation of all stages. With DSC_PIPE_MESSAGES_AT_ONCE time grows with stages x
 * (stages + micro-batches).
 * @return DSC_OK; DSC_ERR_INVALID_ARG (also for an unknown name; the error suggests the nearest one);
 * DSC_ERR_OVERFLOW for more than 2^26 micro-batches times parts of the model (2^21 where the order is
 * stored), or 2^18 stages; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_create(const dsc_pipe_schedule_options_t* options,
                                              dsc_pipe_schedule_t** schedule);

/**
 * @brief Creates a schedule from the order in which each stage computes.
 * @param[in] options stages, stage, micro_batches, chunks (0: 1), placement, forward_only, merge_backward,
 * messages; name becomes the schedule's name, by default "custom"
 * @param[in] operations [starts[options.stages]] those of stage 0, then stage 1, and so on
 * @param[in] starts [options.stages + 1] entries: stage s has operations[starts[s]] to operations[starts[s +
 * 1] - 1]
 * @param[out] schedule the new schedule; NULL on failure
 *
 * Every part of the model needs a forward pass for each micro-batch. Unless forward_only is set, it also
 * needs a backward pass or both halves of one.
 *
 * Collective: no. Blocking: no. Ownership: everything is copied. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG naming stage and operation if an operation is wrong, missing, or can
 * never run; in the last case it also names the cycle of stages that wait for each other; DSC_ERR_OVERFLOW as
 * dsc_pipe_schedule_create(); DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_create_custom(const dsc_pipe_schedule_options_t* options,
                                                     const dsc_pipe_compute_t* operations,
                                                     const size_t* starts, dsc_pipe_schedule_t** schedule);

/**
 * @brief Creates the schedule of another stage of the same pipeline, or of the whole pipeline.
 * @param[in] schedule any schedule
 * @param[in] stage 0 to stages - 1; -1: the whole pipeline
 * @param[out] other the new schedule, at its first instruction; NULL on failure
 *
 * Collective: no. Blocking: no. Threads: any.
 *
 * Cost: as dsc_pipe_schedule_create(); the order is shared.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_at_stage(const dsc_pipe_schedule_t* schedule, int32_t stage,
                                                dsc_pipe_schedule_t** other);

/**
 * @brief Returns the properties of a schedule.
 * @param[in] schedule schedule
 * @param[in,out] info struct_size must be set
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_info(const dsc_pipe_schedule_t* schedule,
                                            dsc_pipe_schedule_info_t* info);

/**
 * @brief Writes a schedule's name.
 * @param[in] schedule schedule
 * @param[out] text the name; may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_name(const dsc_pipe_schedule_t* schedule, char* text, size_t capacity,
                                            size_t* needed);

/**
 * @brief Writes the order in which a stage computes, without loads, messages and buffers.
 * @param[in] schedule any schedule of the pipeline
 * @param[in] stage 0 to stages - 1; it need not be the schedule's stage
 * @param[in] first number of the first operation wanted, 0 or more
 * @param[out] operations those from first on; may be NULL with capacity 0
 * @param[in] capacity entries of operations
 * @param[out] needed number of operations of the stage from first on
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_OVERFLOW for a schedule
 * that is too large to list; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_order(const dsc_pipe_schedule_t* schedule, int32_t stage, size_t first,
                                             dsc_pipe_compute_t* operations, size_t capacity, size_t* needed);

/**
 * @brief Returns the next instruction.
 * @param[in] schedule schedule
 * @param[in,out] instruction [1] struct_size must be set; written unless the schedule has ended
 *
 * Collective: no. Blocking: no. Threads: one at a time per schedule.
 * @return DSC_OK; DSC_DONE after the last one; DSC_ERR_INVALID_ARG; DSC_ERR_STATE for a schedule of the whole
 * pipeline; DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_next(dsc_pipe_schedule_t* schedule,
                                            dsc_pipe_instruction_t* instruction);

/**
 * @brief Goes back to the first instruction.
 * @param[in] schedule schedule
 *
 * Collective: no. Blocking: no. Threads: one at a time per schedule.
 * @return DSC_OK; DSC_ERR_STATE for a schedule of the whole pipeline; DSC_ERR_BAD_HANDLE; DSC_ERR_BUSY;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_reset(dsc_pipe_schedule_t* schedule);

/**
 * @brief Returns the number of steps.
 * @param[in] schedule schedule
 * @param[out] steps [1] 1 or more
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_STATE for a schedule of the whole pipeline;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_steps(const dsc_pipe_schedule_t* schedule, int64_t* steps);

/**
 * @brief Returns what a step computes.
 * @param[in] schedule schedule
 * @param[in] step 0 to steps - 1
 * @param[out] micro_batch the micro-batch; -1 when this stage computes nothing in this step
 * @param[out] is_forward 1: a forward pass (or a step of "data_parallel", which does both); 0: a backward
 * pass. Also set for a step that computes nothing
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_STATE for a schedule of the whole pipeline;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_step(const dsc_pipe_schedule_t* schedule, int64_t step,
                                            int32_t* micro_batch, int32_t* is_forward);

/**
 * @brief Returns the number of micro-batches that this stage must be able to hold at the same time.
 * @param[in] schedule schedule
 * @param[out] buffers [1] 1 or more
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_STATE for a schedule of the whole pipeline;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_buffers(const dsc_pipe_schedule_t* schedule, int32_t* buffers);

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
