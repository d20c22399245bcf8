/**
 * @file pipe_text.h
 * @brief Exports and imports pipeline schedules as text, and checks schedules that other programs made.
 */
#ifndef DSC_PIPE_TEXT_H
#define DSC_PIPE_TEXT_H

#include <dsc/pipe.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief A text format. docs/schedules.md describes each. */
typedef int32_t dsc_pipe_format_t;

/** @brief Values of ::dsc_pipe_format_t. */
enum dsc_pipe_format {
  DSC_PIPE_FORMAT_PYTORCH = 1, /**< PyTorch's CSV without communication: a row per stage, a cell per step */
  DSC_PIPE_FORMAT_PYTORCH_COMMS = 2, /**< PyTorch's CSV with sends and receives */
  DSC_PIPE_FORMAT_DEEPSPEED = 3,     /**< DeepSpeed's instructions, a line per step */
  DSC_PIPE_FORMAT_MEGATRON = 4, /**< Megatron-LM's lists of chunk + 1 and -(chunk + 1), a line per stage */
  DSC_PIPE_FORMAT_JSON = 5,     /**< all of a schedule */
  DSC_PIPE_FORMAT_FORCE32 = 0x7fffffff
};

/**
 * @brief Writes the schedule of a whole pipeline as text.
 *
 * Importing the text gives the same order of operations. Messages, steps and buffers are also the same if the
 * format contains them; JSON does for "deepspeed_*" and for schedules that were imported with them. Exporting
 * the imported schedule gives the same text, with one exception: "deepspeed_inference" in DeepSpeed's format.
 * Its loads come before the receives of their step if the schedule was created, and after them if it was
 * imported.
 *
 * @param[in] schedule any schedule of the pipeline
 * @param[in] format text format
 * @param[out] text may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * Collective: no. Blocking: no. Threads: any.
 *
 * Cost: formats with messages lower all stages.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG for a schedule that the format cannot express, with the
 * reason; DSC_ERR_BAD_HANDLE; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_export(const dsc_pipe_schedule_t* schedule, dsc_pipe_format_t format,
                                              char* text, size_t capacity, size_t* needed);

/**
 * @brief Creates a schedule from text.
 *
 * Stages, chunks, placement and micro-batches are derived from the text. A text without backward passes gives
 * a forward-only schedule. Sends and receives in the text keep their positions. Empty cells of PyTorch's CSV
 * stay idle steps.
 *
 * @param[in] text need not end with a zero byte
 * @param[in] bytes of text
 * @param[in] format text format
 * @param[in] options stage (default 0); for a text without messages also merge_backward and messages. The
 * other options must have their defaults; NULL: all defaults
 * @param[out] schedule the new schedule; NULL on failure
 *
 * Collective: no. Blocking: no. Ownership: the text is copied. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG with line and column for text that is not in this format, and as
 * dsc_pipe_validate() for a schedule that cannot be run; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_schedule_import(const char* text, size_t bytes, dsc_pipe_format_t format,
                                              const dsc_pipe_schedule_options_t* options,
                                              dsc_pipe_schedule_t** schedule);

/**
 * @brief Checks the instructions that another program made for all stages, by simulating them with blocking
 * sends and receives.
 *
 * Loads, the instructions that end a batch, and "overlap" are ignored. Buffers are checked where they are 0
 * or more. A backward pass may be whole or in halves.
 *
 * @param[in] options stages, micro_batches, chunks (0: 1), placement, forward_only; name and the rest are
 * unused
 * @param[in] instructions [starts[options.stages]] those of stage 0, then those of stage 1, and so on; the
 * struct_size of the first one applies to all
 * @param[in] starts [options.stages + 1] entries: stage s has instructions[starts[s]] to
 * instructions[starts[s + 1] - 1]
 *
 * Collective: no. Blocking: no. Ownership: nothing is kept. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG that says what is wrong. It names stage and step of an operation that
 * is repeated, too early or missing, of a message without a counterpart or with a wrong peer, or of a buffer
 * that is in use; or it names the cycle of stages that wait for each other; DSC_ERR_OVERFLOW; DSC_ERR_NOMEM;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_pipe_validate(const dsc_pipe_schedule_options_t* options,
                                       const dsc_pipe_instruction_t* instructions, const size_t* starts);

#ifdef __cplusplus
}
#endif

#endif /* DSC_PIPE_TEXT_H */
