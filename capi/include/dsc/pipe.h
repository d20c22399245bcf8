/**
 * @file pipe.h
 * @brief Pipeline schedules: which stage computes, sends and receives what, in which order.
 *
 * A model is cut into stages, one per rank, or into several chunks per stage. A batch is cut into
 * micro-batches. A schedule says in which order each stage computes; lowering adds loads, sends, receives and
 * buffers. It is plain data and needs no communicator: dsc_pipe_run() carries it out, dsc_pipe_simulate()
 * prices it, dsc_pipe_schedule_export() writes it down.
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
  DSC_PIPE_OP_LOAD_MICRO_BATCH = 1,   /**< load inputs (first stage) or labels (last stage) */
  DSC_PIPE_OP_FORWARD = 2,            /**< forward pass of one micro-batch */
  DSC_PIPE_OP_BACKWARD = 3,           /**< backward pass of one micro-batch */
  DSC_PIPE_OP_BACKWARD_INPUT = 4,     /**< the part of a backward pass that gives gradients of the inputs */
  DSC_PIPE_OP_BACKWARD_WEIGHT = 5,    /**< the part of a backward pass that gives gradients of the weights */
  DSC_PIPE_OP_SEND_ACTIVATION = 6,    /**< send the outputs to the next stage */
  DSC_PIPE_OP_RECV_ACTIVATION = 7,    /**< receive the inputs from the previous stage */
  DSC_PIPE_OP_SEND_GRAD = 8,          /**< send the gradients of the inputs to the previous stage */
  DSC_PIPE_OP_RECV_GRAD = 9,          /**< receive the gradients of the outputs from the next stage */
  DSC_PIPE_OP_REDUCE_TIED_GRADS = 10, /**< sum the gradients of weights that several stages share */
  DSC_PIPE_OP_REDUCE_GRADS = 11,      /**< reduce gradients over the data-parallel ranks */
  DSC_PIPE_OP_OPTIMIZER_STEP = 12,    /**< update the weights */
  DSC_PIPE_OP_OVERLAP = 13,           /**< a forward and a backward pass at once */
  DSC_PIPE_OP_FORCE32 = 0x7fffffff
};

/** @brief Where the parts of a model are. Data flows through parts 0, 1, 2 ...; with s stages and c chunks
 * there are s x c of them. */
typedef int32_t dsc_pipe_placement_t;

/** @brief Values of ::dsc_pipe_placement_t. */
enum dsc_pipe_placement {
  DSC_PIPE_PLACEMENT_LOOP = 0,   /**< part p is on stage p modulo the number of stages */
  DSC_PIPE_PLACEMENT_ZIGZAG = 1, /**< from the first stage to the last, then back: two chunks make a V */
  DSC_PIPE_PLACEMENT_APART = 2,  /**< every stage has a whole model; no data flows */
  DSC_PIPE_PLACEMENT_FORCE32 = 0x7fffffff
};

/** @brief Where lowering puts messages. Both complete even if every send waits for its receive. */
typedef int32_t dsc_pipe_messages_t;

/** @brief Values of ::dsc_pipe_messages_t. */
enum dsc_pipe_messages {
  DSC_PIPE_MESSAGES_WHEN_NEEDED = 0, /**< when the receiver needs them next: fewest buffers */
  DSC_PIPE_MESSAGES_AT_ONCE = 1, /**< sent after what makes them and received as early, as by PyTorch 2.7 */
  DSC_PIPE_MESSAGES_FORCE32 = 0x7fffffff
};

/** @brief A schedule, of one stage or of the whole pipeline. Thread-safety: one thread at a time for next,
 * reset and run; any thread for the rest. Different schedules are independent. */
typedef struct dsc_pipe_schedule dsc_pipe_schedule_t;

/** @brief One instruction. Fields that have no meaning for its op are -1. */
typedef struct dsc_pipe_instruction {
  size_t struct_size;  /**< size of this struct as the caller compiled it */
  int64_t step;        /**< 0 to steps - 1, never falling */
  dsc_pipe_op_t op;    /**< what is asked for */
  int32_t micro_batch; /**< 0 to micro_batches - 1 */
  int32_t chunk;       /**< part of the model on this stage, 0 to chunks - 1 */
  int32_t buffer;      /**< place that holds the micro-batch here, 0 to buffers - 1 */
  int32_t peer;        /**< stage at the other end of a send or receive */
  int32_t reserved;    /**< 0 */
} dsc_pipe_instruction_t;

/** @brief What a schedule is for. Fill with dsc_pipe_schedule_options_init(). */
typedef struct dsc_pipe_schedule_options {
  size_t struct_size; /**< size of this struct as the caller compiled it */
  const char* name;   /**< see dsc_pipe_schedule_create() */
  int32_t stages;     /**< devices of the pipeline, 1 or more */
  int32_t stage; /**< whose instructions: 0 to stages - 1; -1: the whole pipeline, which has no instructions
                    but can be simulated, drawn, written down and taken apart */
  int32_t micro_batches; /**< of a batch, 1 or more; may be fewer than stages */
  int32_t chunks;        /**< parts of the model on every stage; default 0: what the schedule is made for */
  int32_t micro_batch_group; /**< interleaved_1f1b: micro-batches that run through a chunk before the next
                                chunk; default 0: as many as stages, or what divides the batch evenly */
  int32_t forward_only;      /**< 1: without backward passes; default 0 */
  int32_t merge_backward;    /**< 1: halves of a backward pass that follow each other become one; default 0 */
  dsc_pipe_messages_t messages;   /**< default DSC_PIPE_MESSAGES_WHEN_NEEDED */
  dsc_pipe_placement_t placement; /**< for dsc_pipe_schedule_create_custom() only; default 0 */
  int32_t reserved;               /**< 0 */
} dsc_pipe_schedule_options_t;

/** @brief What a schedule is. */
typedef struct dsc_pipe_schedule_info {
  size_t struct_size;             /**< size of this struct as the caller compiled it */
  int32_t stages;                 /**< devices of the pipeline */
  int32_t stage;                  /**< whose instructions; -1: the whole pipeline */
  int32_t micro_batches;          /**< of a batch */
  int32_t chunks;                 /**< parts of the model on every stage */
  int32_t micro_batch_group;      /**< as it was made; 0 where it has no meaning */
  int32_t forward_only;           /**< 1: without backward passes */
  dsc_pipe_messages_t messages;   /**< where lowering put messages */
  dsc_pipe_placement_t placement; /**< where the parts of the model are */
} dsc_pipe_schedule_info_t;

/** @brief One operation of a stage. */
typedef struct dsc_pipe_compute {
  dsc_pipe_op_t
      op;        /**< forward, backward, backward_input or backward_weight; 0: the stage is idle for a step */
  int32_t chunk; /**< 0 to chunks - 1; -1 when idle */
  int32_t micro_batch; /**< 0 to micro_batches - 1; -1 when idle */
  int32_t overlaps; /**< 1: it runs at once with the next one, a forward pass with a backward pass; else 0 */
} dsc_pipe_compute_t;

/**
 * @brief Gives the name of an instruction's op, such as "forward" or "send_activation".
 * @param[in] op any value
 *
 * Collective: no. Blocking: no. Threads: any. Works after fork().
 * @return a static string; "unknown" for a value that is no op
 * @since 0.1
 */
DSC_API const char* dsc_pipe_op_name(dsc_pipe_op_t op);

/**
 * @brief Fills schedule options with their defaults. name, stages and micro_batches have none and must be
 * set; stage is 0.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_pipe_schedule_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_options_init(dsc_pipe_schedule_options_t* options, size_t struct_size);

/**
 * @brief Makes the schedule of one stage, or of the whole pipeline.
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
 * - "interleaved_1f1b": several chunks; groups of micro-batches run through them in turn (the same paper;
 * Megatron-LM; with groups of micro_batches / (micro_batches / stages) PyTorch 2.7's Interleaved1F1B).
 * - "looped_bfs": several chunks, one after the other, backward from the last micro-batch on (Lamy-Poirier
 * 2023, arXiv:2211.05953; PyTorch 2.7's LoopedBFS).
 * - "zb_h1", "zb_h2": split backward passes; the second hides all bubbles behind about twice the activations
 * (Qi et al. 2024, arXiv:2401.10241).
 * - "zb_v": the same with two chunks in a V and the activations of 1f1b (PyTorch 2.7's ZBVZeroBubble).
 * - "v_half", "v_min": a V that needs about a half or a third of the activations of 1f1b (Qi et al. 2024,
 * arXiv:2405.15362; sail-sg/zero-bubble-pipeline-parallelism, commit 39f2c18).
 * - "dualpipe_v": a V in which forward and backward passes run at once (DeepSeek's DualPipe, cut in half;
 * PyTorch's ScheduleDualPipeV); micro_batches at least 2 stages.
 * - "auto": what dsc_pipe_search() finds for equal costs and without limits.
 *
 * All but the first three are lowered: a step is one operation of this stage, or two at once (after an
 * instruction "overlap"), with the sends and receives before it; sends and receives of all stages follow one
 * common order, so that they complete even when every send waits for its receive.
 *
 * @param[in] options what to make; chunks is 1 for schedules without chunks, 2 for those in a V, 1 or more
 * for interleaved_1f1b and looped_bfs (default 2)
 * @param[out] schedule the new schedule, at its first instruction; NULL on failure
 *
 * Collective: no. Blocking: no. Ownership: options are copied; the schedule is the caller's, to be given to
 * dsc_pipe_schedule_destroy(). Threads: any.
 * Cost: none for the first three. For the others time grows with stages x chunks x micro-batches (about 0.1
 * microseconds each, so up to seconds) if there is a stage, and memory with the instructions of this stage.
 * v_half, v_min and merged ones store their order, 16 bytes per operation of all stages. With
 * DSC_PIPE_MESSAGES_AT_ONCE time grows with stages x (stages + micro-batches).
 * @return DSC_OK; DSC_ERR_INVALID_ARG (also for an unknown name, which tells the nearest one);
 * DSC_ERR_OVERFLOW for more than 2^26 micro-batches times parts of the model (2^21 where the order is
 * stored), or 2^18 stages; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_create(const dsc_pipe_schedule_options_t* options,
                                              dsc_pipe_schedule_t** schedule);

/**
 * @brief Makes a schedule from the order in which each stage computes.
 * @param[in] options stages, stage, micro_batches, chunks (0: 1), placement, forward_only, merge_backward,
 * messages; name is what it will be called, NULL for "custom"
 * @param[in] operations those of stage 0, then those of stage 1, and so on
 * @param[in] starts stages + 1 entries: stage s has operations[starts[s]] to operations[starts[s + 1] - 1]
 * @param[out] schedule the new schedule; NULL on failure
 *
 * Every part of the model needs a forward pass of each micro-batch, and unless forward_only is set a backward
 * pass or both halves of one.
 *
 * Collective: no. Blocking: no. Ownership: everything is copied. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG naming stage and operation for one that is wrong, missing, or can never
 * run, with the stages that wait for each other in a circle; DSC_ERR_OVERFLOW as
 * dsc_pipe_schedule_create(); DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_create_custom(const dsc_pipe_schedule_options_t* options,
                                                     const dsc_pipe_compute_t* operations,
                                                     const size_t* starts, dsc_pipe_schedule_t** schedule);

/**
 * @brief Makes the schedule of another stage of the same pipeline, or of the whole pipeline.
 * @param[in] schedule any schedule
 * @param[in] stage 0 to stages - 1; -1: the whole pipeline
 * @param[out] other the new schedule, at its first instruction; NULL on failure
 *
 * Collective: no. Blocking: no. Threads: any. Cost: as dsc_pipe_schedule_create(); the order is shared.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_at_stage(const dsc_pipe_schedule_t* schedule, int32_t stage,
                                                dsc_pipe_schedule_t** other);

/**
 * @brief Says what a schedule is.
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
 * @brief Gives a schedule's name.
 * @param[in] schedule schedule
 * @param[out] text the name; may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed needed bytes, the final zero included
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_name(const dsc_pipe_schedule_t* schedule, char* text, size_t capacity,
                                            size_t* needed);

/**
 * @brief Gives the order in which a stage computes, without loads, messages and buffers.
 * @param[in] schedule any schedule of the pipeline
 * @param[in] stage 0 to stages - 1, whatever stage the schedule is of
 * @param[in] first number of the first operation wanted, 0 or more
 * @param[out] operations those from first on; may be NULL with capacity 0
 * @param[in] capacity entries of operations
 * @param[out] needed how many operations the stage has in all
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_OVERFLOW for a closed
 * form that is too large to be written down; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_order(const dsc_pipe_schedule_t* schedule, int32_t stage, size_t first,
                                             dsc_pipe_compute_t* operations, size_t capacity, size_t* needed);

/**
 * @brief Gives the next instruction.
 * @param[in] schedule schedule
 * @param[in,out] instruction struct_size must be set; written unless the schedule is at its end
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
 * @brief Gives the number of steps.
 * @param[in] schedule schedule
 * @param[out] steps 1 or more
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_STATE for a schedule of the whole pipeline;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_steps(const dsc_pipe_schedule_t* schedule, int64_t* steps);

/**
 * @brief Says what a step computes.
 * @param[in] schedule schedule
 * @param[in] step 0 to steps - 1
 * @param[out] micro_batch the micro-batch; -1 when this stage computes nothing in this step
 * @param[out] is_forward 1: a forward pass (and "data_parallel", whose steps do both); 0: a backward pass.
 * Also told for a step that computes nothing
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_STATE for a schedule of the whole pipeline;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_step(const dsc_pipe_schedule_t* schedule, int64_t step,
                                            int32_t* micro_batch, int32_t* is_forward);

/**
 * @brief Gives the number of micro-batches that this stage must be able to hold at once.
 * @param[in] schedule schedule
 * @param[out] buffers 1 or more
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
