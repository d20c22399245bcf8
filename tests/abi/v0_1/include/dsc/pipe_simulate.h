/**
 * @file pipe_simulate.h
 * @brief Simulates, searches and draws pipeline schedules, without a GPU or a second process.
 */
#ifndef DSC_PIPE_SIMULATE_H
#define DSC_PIPE_SIMULATE_H

#include <dsc/pipe.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief What operations, messages and memory cost. Fill with dsc_pipe_costs_init().
 *
 * Times are in a unit that the caller chooses, sizes in bytes. A list has n entries: one for all parts of the
 * model, or one for each part in the order of data flow. All values are finite and 0 or more; for overlap see
 * below.
 */
typedef struct dsc_pipe_costs {
  size_t struct_size;           /**< size of this struct as the caller compiled it */
  const double* forward;        /**< [n] time of a forward pass; NULL: 1 */
  const double* backward_input; /**< [n] time of the first half of a backward pass; NULL: 1 */
  const double*
      backward_weight; /**< [n] time of the second half; a whole backward pass takes both; NULL: 1 */
  const double*
      message_bytes; /**< [n] activations that a part sends, and gradients that it gets back; NULL: 0 */
  const double* activation_bytes; /**< [n] held for a micro-batch from its forward to the end of its backward
                                     pass; NULL: 0 */
  const double* static_bytes;     /**< [n] weights, their gradients and the optimizer's state; NULL: 0 */
  const double* gradient_bytes; /**< [n] reduced over data-parallel ranks at the end; NULL: 0, no reduction */
  size_t n;       /**< entries of every list that is not NULL: 1, or stages x chunks; default 1 */
  double overlap; /**< time of a forward and a backward pass that run together, as a fraction of their sum:
                     above 0, at most 1; default 1 */
  double latency; /**< of a message between stages; default 0 */
  double bytes_per_time;        /**< of a link between two stages, in each direction; default 0: unlimited */
  double bucket_bytes;          /**< gradients reduced in one operation; default 0: all of a part */
  double reduce_latency;        /**< of an all-reduce; default 0 */
  double reduce_bytes_per_time; /**< of gradients in an all-reduce; default 0: unlimited */
} dsc_pipe_costs_t;

/** @brief The result of a simulation; it never changes. Thread-safety: any thread, several at once. */
typedef struct dsc_pipe_report dsc_pipe_report_t;

/** @brief What a stage does in a simulation. */
typedef struct dsc_pipe_stage_stats {
  size_t struct_size;       /**< in the first element: size of this struct as the caller compiled it */
  double busy;              /**< time in which it computes */
  double start;             /**< when its first operation starts */
  double finish;            /**< when its last operation ends */
  double idle;              /**< idle time within the makespan: makespan - busy */
  double own_window_idle;   /**< idle time between start and finish: finish - start - busy */
  double reduced;           /**< when its last all-reduce ends; 0: it has none */
  double peak_bytes;        /**< static bytes plus the largest bytes of activations */
  int64_t peak_activations; /**< most activations held at a time, one per micro-batch and chunk */
} dsc_pipe_stage_stats_t;

/** @brief An operation in a simulation. */
typedef struct dsc_pipe_span {
  size_t struct_size;  /**< in the first element: size of this struct as the caller compiled it */
  double start;        /**< when it starts */
  double finish;       /**< when it ends; two that run together have the same times */
  int32_t stage;       /**< stage that runs it */
  dsc_pipe_op_t op;    /**< kind of operation */
  int32_t chunk;       /**< 0 to chunks - 1 */
  int32_t micro_batch; /**< 0 to micro_batches - 1 */
} dsc_pipe_span_t;

/** @brief Limits of a search for a schedule. Fill with dsc_pipe_search_options_init(). */
typedef struct dsc_pipe_search_options {
  size_t struct_size;  /**< size of this struct as the caller compiled it */
  int64_t activations; /**< limit on the activations that a stage holds, one per micro-batch and chunk; 0
                          (default): no limit */
  double bytes;        /**< limit on the bytes of a stage, static ones included; 0 (default): no limit */
} dsc_pipe_search_options_t;

/** @brief The quality of the schedule that a search found. */
typedef struct dsc_pipe_search_result {
  size_t struct_size;         /**< in: size of this struct as the caller compiled it */
  double makespan;            /**< of the found schedule */
  double bound;               /**< no order has a smaller makespan */
  double best_named_makespan; /**< of the best named schedule; 0: none satisfies the limits */
  int32_t is_optimal;         /**< 1: proved optimal; 0: not known */
  int32_t reserved;           /**< 0 */
  char best_named[32];        /**< the name of that schedule; "" if none */
  char origin[32];            /**< a schedule's name, "greedy", "repaired" or "exact" */
} dsc_pipe_search_result_t;

/** @brief A picture format. */
typedef int32_t dsc_pipe_picture_t;

/** @brief Values of ::dsc_pipe_picture_t. */
enum dsc_pipe_picture {
  DSC_PIPE_PICTURE_TEXT = 1,     /**< a line per stage, for a terminal */
  DSC_PIPE_PICTURE_COLOR = 2,    /**< the same with colours, as ANSI escape sequences */
  DSC_PIPE_PICTURE_SVG = 3,      /**< a drawing for an .svg file */
  DSC_PIPE_PICTURE_PERFETTO = 4, /**< for ui.perfetto.dev; one unit is shown as one microsecond */
  DSC_PIPE_PICTURE_FORCE32 = 0x7fffffff
};

/**
 * @brief Fills costs with their defaults: every operation takes 1, messages and memory cost nothing.
 * @param[out] costs the struct to fill
 * @param[in] struct_size sizeof(dsc_pipe_costs_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_costs_init(dsc_pipe_costs_t* costs, size_t struct_size);

/**
 * @brief Computes when every operation of a pipeline runs, and how much memory that takes.
 *
 * Every stage runs its operations in the schedule's order, each as soon as it has its input. A message waits
 * for its link, uses it for bytes / bytes_per_time, and arrives latency later; both stages keep computing
 * meanwhile. An activation is held from the start of its forward pass to the end of the half that computes
 * gradients of weights. Gradients of a part become ready at an even rate during the last operation that adds
 * to them, and are reduced bucket by bucket.
 *
 * @param[in] schedule any schedule of the pipeline
 * @param[in] costs NULL: defaults
 * @param[out] report the result; NULL on failure
 *
 * Collective: no. Blocking: no. Ownership: the caller releases the report with dsc_pipe_report_destroy().
 * Threads: any.
 *
 * Cost: about 0.1 microseconds and 60 bytes per operation of all stages.
 * @return DSC_OK; DSC_ERR_INVALID_ARG naming the wrong cost; DSC_ERR_BAD_HANDLE; DSC_ERR_OVERFLOW for more
 * than 2^26 micro-batches times parts of the model; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_simulate(const dsc_pipe_schedule_t* schedule, const dsc_pipe_costs_t* costs,
                                       dsc_pipe_report_t** report);

/**
 * @brief Returns the time at which all stages have computed and reduced.
 * @param[in] report report
 * @param[out] makespan in the unit of the costs
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_report_makespan(const dsc_pipe_report_t* report, double* makespan);

/**
 * @brief Writes the times and memory of each stage.
 * @param[in] report report
 * @param[in,out] stages one entry per stage; stages[0].struct_size must be set; may be NULL with capacity 0
 * @param[in] capacity entries of stages
 * @param[out] needed number of stages
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_report_stages(const dsc_pipe_report_t* report, dsc_pipe_stage_stats_t* stages,
                                            size_t capacity, size_t* needed);

/**
 * @brief Writes all operations, stage after stage, in the order of time.
 *
 * The first call, also with capacity 0, simulates again and keeps the operations in the report. It takes
 * about the time and memory of dsc_pipe_simulate(), plus 40 bytes per operation. Later calls only copy.
 *
 * @param[in] report report
 * @param[in,out] spans the operations; spans[0].struct_size must be set; may be NULL with capacity 0
 * @param[in] capacity entries of spans
 * @param[out] needed number of operations
 *
 * Collective: no. Blocking: while another thread makes the first call. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM in the first call,
 * which may be repeated; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_report_timeline(const dsc_pipe_report_t* report, dsc_pipe_span_t* spans,
                                              size_t capacity, size_t* needed);

/**
 * @brief Writes the critical path: a chain of operations none of which can be delayed without lengthening the
 * makespan.
 *
 * The first call, also with capacity 0, simulates again, as for dsc_pipe_report_timeline(), and keeps the
 * chain in the report. Later calls only copy.
 *
 * @param[in] report report
 * @param[in,out] spans the operations; spans[0].struct_size must be set; may be NULL with capacity 0
 * @param[in] capacity entries of spans
 * @param[out] needed number of operations
 *
 * Collective: no. Blocking: while another thread makes the first call. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM in the first call,
 * which may be repeated; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_report_critical_path(const dsc_pipe_report_t* report, dsc_pipe_span_t* spans,
                                                   size_t capacity, size_t* needed);

/**
 * @brief Releases a report.
 * @param[in] report report; NULL does nothing
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_report_destroy(dsc_pipe_report_t* report);

/**
 * @brief Fills search options with their defaults: no limits.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_pipe_search_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_search_options_init(dsc_pipe_search_options_t* options, size_t struct_size);

/**
 * @brief Finds the best schedule for given costs and memory limits.
 *
 * It tries all named schedules, orders that greedy rules find in simulated time, and small changes of the
 * best one. For up to 36 operations over all stages it also searches all orders (branch and bound, up to 3
 * million steps). It uses the placement LOOP, and with more than one chunk also ZIGZAG. The same arguments
 * give the same schedule everywhere, so every rank may search by itself.
 *
 * @param[in] options stages, stage, micro_batches, chunks (0: 1), forward_only, messages; name must be NULL
 * or "auto", and the other options must have their defaults
 * @param[in] costs NULL: defaults
 * @param[in] search limits; NULL: none
 * @param[in,out] result the quality of the schedule; struct_size must be set; may be NULL
 * @param[out] schedule the new schedule; NULL on failure
 *
 * Collective: no. Blocking: no. Ownership: everything is copied. Threads: any.
 *
 * Cost: a few hundred simulations, so milliseconds to a few seconds.
 * @return DSC_OK; DSC_ERR_INVALID_ARG, also when no order satisfies the limits; DSC_ERR_OVERFLOW for more
 * than 66,666 micro-batches times parts of the model; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_search(const dsc_pipe_schedule_options_t* options,
                                     const dsc_pipe_costs_t* costs, const dsc_pipe_search_options_t* search,
                                     dsc_pipe_search_result_t* result, dsc_pipe_schedule_t** schedule);

/**
 * @brief Draws when every operation of a pipeline runs.
 * @param[in] schedule any schedule of the pipeline
 * @param[in] costs NULL: defaults
 * @param[in] picture picture format
 * @param[out] text the picture; may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_OVERFLOW for more than
 * 200,000 operations; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_draw(const dsc_pipe_schedule_t* schedule, const dsc_pipe_costs_t* costs,
                                   dsc_pipe_picture_t picture, char* text, size_t capacity, size_t* needed);

#ifdef __cplusplus
}
#endif

#endif /* DSC_PIPE_SIMULATE_H */
