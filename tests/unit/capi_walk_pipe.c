/* Pipeline schedules. */
#include <stdint.h>

#include "capi_walk.h"

#define S walk_world.schedule
#define W walk_world.alone

static dsc_pipe_schedule_options_t right_options(void) {
  dsc_pipe_schedule_options_t options;
  WALK(DSC_OK, dsc_pipe_schedule_options_init(&options, sizeof options));
  options.name = "1f1b";
  options.stages = 4;
  options.stage = 1;
  options.micro_batches = 8;
  return options;
}

static void op_name(void) {
  EXPECT(strcmp(dsc_pipe_op_name(DSC_PIPE_LOAD_MICRO_BATCH), "load_micro_batch") == 0);
  EXPECT(strcmp(dsc_pipe_op_name(DSC_PIPE_OVERLAP), "overlap") == 0);
  const int32_t unknown[] = {0, 14, -1, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < 5; ++i) EXPECT(strcmp(dsc_pipe_op_name(unknown[i]), "unknown") == 0);
}

static void options_init(void) {
  dsc_pipe_schedule_options_t options;
  memset(&options, 0x77, sizeof options);
  WALK_INVALID(dsc_pipe_schedule_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_pipe_schedule_options_init(&options, sizeof options - 1));
  EXPECT(options.chunks == 0x77777777);
  WALK(DSC_OK, dsc_pipe_schedule_options_init(&options, sizeof options));
  EXPECT(options.chunks == 1 && options.name == NULL && options.stages == 0);
}

/* Options of one wrong field each, and what they give. */
static void create(void) {
  dsc_pipe_schedule_t* schedule = S;
  dsc_pipe_schedule_options_t options = right_options();
  WALK_INVALID(dsc_pipe_schedule_create(&options, NULL));
  WALK_INVALID(dsc_pipe_schedule_create(NULL, &schedule));
  EXPECT(schedule == NULL);
#define WRONG(expected, field, value)                                      \
  options.field = (value);                                                 \
  WALK(DSC_ERR_##expected, dsc_pipe_schedule_create(&options, &schedule)); \
  options = right_options()
  WRONG(INVALID_ARG, struct_size, sizeof options - 1);
  WRONG(INVALID_ARG, name, NULL);
  WRONG(INVALID_ARG, name, "");
  WRONG(INVALID_ARG, name, "1F1B");
  WRONG(UNSUPPORTED, name, "zb_v");
  WRONG(INVALID_ARG, stages, 0);
  WRONG(INVALID_ARG, stages, INT32_MIN);
  WRONG(INVALID_ARG, stage, 4);
  WRONG(INVALID_ARG, stage, -1);
  WRONG(INVALID_ARG, micro_batches, 0);
  WRONG(INVALID_ARG, micro_batches, INT32_MIN);
  WRONG(INVALID_ARG, chunks, 0);
  WRONG(INVALID_ARG, chunks, 2);
  WRONG(OVERFLOW, micro_batches, INT32_MAX);
  WRONG(OVERFLOW, stages, INT32_MAX);
#undef WRONG
  EXPECT(schedule == NULL);
  WALK(DSC_OK, dsc_pipe_schedule_create(&options, &schedule));
  WALK(DSC_OK, dsc_pipe_schedule_destroy(schedule));
}

static void next(void) {
  dsc_pipe_instruction_t instruction = {.struct_size = sizeof instruction, .step = 99};
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t, dsc_pipe_schedule_next(bad, &instruction));
  WALK_INVALID(dsc_pipe_schedule_next(S, NULL));
  instruction.struct_size = 0;
  WALK_INVALID(dsc_pipe_schedule_next(S, &instruction));
  instruction.struct_size = sizeof instruction - 1;
  WALK_INVALID(dsc_pipe_schedule_next(S, &instruction));
  EXPECT(instruction.step == 99 && instruction.op == 0);
  instruction.struct_size = sizeof instruction;
  WALK(DSC_OK, dsc_pipe_schedule_next(S, &instruction));
  EXPECT(instruction.step == 0 && instruction.op == DSC_PIPE_RECV_ACTIVATION && instruction.peer == 0);
  dsc_result_t result = DSC_OK;
  while (result == DSC_OK) result = dsc_pipe_schedule_next(S, &instruction);
  EXPECT(result == DSC_DONE && instruction.op == DSC_PIPE_OPTIMIZER_STEP && instruction.buffer == -1);
  WALK(DSC_DONE, dsc_pipe_schedule_next(S, &instruction));
}

static void reset(void) {
  dsc_pipe_instruction_t instruction = {.struct_size = sizeof instruction};
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t, dsc_pipe_schedule_reset(bad));
  WALK(DSC_OK, dsc_pipe_schedule_reset(S));
  WALK(DSC_OK, dsc_pipe_schedule_next(S, &instruction));
  EXPECT(instruction.op == DSC_PIPE_RECV_ACTIVATION);
}

static void steps(void) {
  int64_t steps = 99;
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t, dsc_pipe_schedule_steps(bad, &steps));
  WALK_INVALID(dsc_pipe_schedule_steps(S, NULL));
  EXPECT(steps == 99);
  WALK(DSC_OK, dsc_pipe_schedule_steps(S, &steps));
  EXPECT(steps == 16);
}

static void step(void) {
  int32_t micro_batch = 99, is_forward = 99;
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t,
                   dsc_pipe_schedule_step(bad, 0, &micro_batch, &is_forward));
  WALK_INVALID(dsc_pipe_schedule_step(S, 0, NULL, &is_forward));
  WALK_INVALID(dsc_pipe_schedule_step(S, 0, &micro_batch, NULL));
  WALK_INVALID(dsc_pipe_schedule_step(S, -1, &micro_batch, &is_forward));
  WALK_INVALID(dsc_pipe_schedule_step(S, 16, &micro_batch, &is_forward));
  WALK_INVALID(dsc_pipe_schedule_step(S, INT64_MIN, &micro_batch, &is_forward));
  EXPECT(micro_batch == 99 && is_forward == 99);
  WALK(DSC_OK, dsc_pipe_schedule_step(S, 15, &micro_batch, &is_forward));
  EXPECT(micro_batch == 7 && is_forward == 0);
}

static void buffers(void) {
  int32_t buffers = 99;
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t, dsc_pipe_schedule_buffers(bad, &buffers));
  WALK_INVALID(dsc_pipe_schedule_buffers(S, NULL));
  EXPECT(buffers == 99);
  WALK(DSC_OK, dsc_pipe_schedule_buffers(S, &buffers));
  EXPECT(buffers == 3);
}

static void destroy(void) {
  WALK_BAD_HANDLES_BUT_NULL(WALK_SCHEDULE, dsc_pipe_schedule_t, dsc_pipe_schedule_destroy(bad));
  WALK(DSC_OK, dsc_pipe_schedule_destroy(NULL));
}

static void callbacks_init(void) {
  dsc_pipe_callbacks_t callbacks;
  memset(&callbacks, 0x77, sizeof callbacks);
  WALK_INVALID(dsc_pipe_callbacks_init(NULL, sizeof callbacks));
  WALK_INVALID(dsc_pipe_callbacks_init(&callbacks, sizeof callbacks - 1));
  WALK(DSC_OK, dsc_pipe_callbacks_init(&callbacks, sizeof callbacks));
  EXPECT(callbacks.struct_size == sizeof callbacks && callbacks.context == NULL);
  EXPECT(callbacks.load_micro_batch == NULL && callbacks.optimizer_step == NULL);
}

static void run_options_init(void) {
  dsc_pipe_run_options_t options;
  memset(&options, 0x77, sizeof options);
  WALK_INVALID(dsc_pipe_run_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_pipe_run_options_init(&options, offsetof(dsc_pipe_run_options_t, stream) - 1));
  WALK(DSC_OK, dsc_pipe_run_options_init(&options, sizeof options));
  EXPECT(options.struct_size == sizeof options && options.inputs == NULL && options.n_outputs == 0);
}

static int32_t do_nothing(void* context, const dsc_pipe_call_t* call) {
  (void)context;
  return call->loss == NULL ? 0 : 1;
}

static int32_t right_forward(void* context, const dsc_pipe_call_t* call) {
  (void)context;
  *call->loss = 2.5;
  return 0;
}

static void run(void) {
  dsc_pipe_schedule_options_t one_stage = right_options();
  one_stage.stages = 1;
  one_stage.stage = 0;
  one_stage.name = "data_parallel";
  dsc_pipe_schedule_t* schedule = NULL;
  WALK(DSC_OK, dsc_pipe_schedule_create(&one_stage, &schedule));
  dsc_pipe_callbacks_t callbacks = {.struct_size = sizeof callbacks};
  dsc_pipe_run_options_t options;
  WALK(DSC_OK, dsc_pipe_run_options_init(&options, sizeof options));
  double mean = 99;
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t, dsc_pipe_run(bad, W, &callbacks, &options, &mean));
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_pipe_run(schedule, bad, &callbacks, &options, &mean));
  WALK_INVALID(dsc_pipe_run(schedule, W, NULL, &options, &mean));
  callbacks.struct_size = sizeof callbacks - 1;
  WALK_INVALID(dsc_pipe_run(schedule, W, &callbacks, &options, &mean));
  callbacks.struct_size = sizeof callbacks;
  WALK_INVALID(dsc_pipe_run(schedule, W, &callbacks, &options, &mean)); /* nothing to call */
  options.struct_size = 1;
  WALK_INVALID(dsc_pipe_run(schedule, W, &callbacks, &options, &mean));
  options.struct_size = sizeof options;
  options.n_inputs = 1;
  WALK_INVALID(dsc_pipe_run(schedule, W, &callbacks, &options, &mean));
  options.n_inputs = 0;
  callbacks.load_micro_batch = callbacks.forward = callbacks.backward = do_nothing;
  callbacks.reduce_grads = callbacks.optimizer_step = do_nothing;
  WALK_INVALID(dsc_pipe_run(S, W, &callbacks, &options, &mean)); /* a stage of another pipeline */
  EXPECT(mean == 99);
  callbacks.forward = right_forward;
  WALK(DSC_OK, dsc_pipe_run(schedule, W, &callbacks, NULL, &mean));
  EXPECT(mean == 2.5);
  WALK(DSC_OK, dsc_pipe_run(schedule, W, &callbacks, &options, NULL));
  WALK(DSC_OK, dsc_pipe_schedule_destroy(schedule));
}

const walk_step_t walk_pipe[] = {
    {"dsc_pipe_op_name", op_name},
    {"dsc_pipe_schedule_options_init", options_init},
    {"dsc_pipe_schedule_create", create},
    {"dsc_pipe_schedule_next", next},
    {"dsc_pipe_schedule_reset", reset},
    {"dsc_pipe_schedule_steps", steps},
    {"dsc_pipe_schedule_step", step},
    {"dsc_pipe_schedule_buffers", buffers},
    {"dsc_pipe_callbacks_init", callbacks_init},
    {"dsc_pipe_run_options_init", run_options_init},
    {"dsc_pipe_run", run},
    {"dsc_pipe_schedule_destroy", destroy},
    {NULL, NULL},
};
