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
  EXPECT(strcmp(dsc_pipe_op_name(DSC_PIPE_OP_LOAD_MICRO_BATCH), "load_micro_batch") == 0);
  EXPECT(strcmp(dsc_pipe_op_name(DSC_PIPE_OP_OVERLAP), "overlap") == 0);
  const int32_t unknown[] = {0, 14, -1, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < 5; ++i) EXPECT(strcmp(dsc_pipe_op_name(unknown[i]), "unknown") == 0);
}

static void options_init(void) {
  dsc_pipe_schedule_options_t options;
  memset(&options, 0x77, sizeof options);
  WALK_INVALID(dsc_pipe_schedule_options_init(NULL, sizeof options));
  WALK_INVALID(
      dsc_pipe_schedule_options_init(&options, offsetof(dsc_pipe_schedule_options_t, micro_batch_group) - 1));
  EXPECT(options.chunks == 0x77777777);
  WALK(DSC_OK, dsc_pipe_schedule_options_init(&options, sizeof options));
  EXPECT(options.chunks == 0 && options.name == NULL && options.stages == 0 && options.messages == 0);
}

/* Options that have one wrong field each, with the code that they must give. */
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
  WRONG(INVALID_ARG, struct_size, offsetof(dsc_pipe_schedule_options_t, micro_batch_group) - 1);
  WRONG(INVALID_ARG, name, NULL);
  WRONG(INVALID_ARG, name, "");
  WRONG(INVALID_ARG, name, "1F1B");
  WRONG(INVALID_ARG, name, "custom");
  WRONG(INVALID_ARG, stages, 0);
  WRONG(INVALID_ARG, stages, INT32_MIN);
  WRONG(INVALID_ARG, stage, 4);
  WRONG(INVALID_ARG, stage, -2);
  WRONG(INVALID_ARG, micro_batches, 0);
  WRONG(INVALID_ARG, micro_batches, INT32_MIN);
  WRONG(INVALID_ARG, chunks, -1);
  WRONG(INVALID_ARG, chunks, 2);
  WRONG(OVERFLOW, micro_batches, INT32_MAX);
  WRONG(OVERFLOW, stages, INT32_MAX);
  WRONG(INVALID_ARG, micro_batch_group, 4);
  WRONG(INVALID_ARG, forward_only, 2);
  WRONG(INVALID_ARG, merge_backward, -1);
  WRONG(INVALID_ARG, messages, 2);
  WRONG(INVALID_ARG, placement, 1);
  WRONG(INVALID_ARG, reserved, 1);
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
  EXPECT(instruction.step == 0 && instruction.op == DSC_PIPE_OP_RECV_ACTIVATION && instruction.peer == 0);
  dsc_result_t result = DSC_OK;
  while (result == DSC_OK) result = dsc_pipe_schedule_next(S, &instruction);
  EXPECT(result == DSC_DONE && instruction.op == DSC_PIPE_OP_OPTIMIZER_STEP && instruction.buffer == -1);
  WALK(DSC_DONE, dsc_pipe_schedule_next(S, &instruction));
}

static void reset(void) {
  dsc_pipe_instruction_t instruction = {.struct_size = sizeof instruction};
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t, dsc_pipe_schedule_reset(bad));
  WALK(DSC_OK, dsc_pipe_schedule_reset(S));
  WALK(DSC_OK, dsc_pipe_schedule_next(S, &instruction));
  EXPECT(instruction.op == DSC_PIPE_OP_RECV_ACTIVATION);
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

/* Two stages and one micro-batch. */
static const dsc_pipe_compute_t both_orders[] = {{DSC_PIPE_OP_FORWARD, 0, 0, 0},
                                                 {DSC_PIPE_OP_BACKWARD, 0, 0, 0},
                                                 {DSC_PIPE_OP_FORWARD, 0, 0, 0},
                                                 {DSC_PIPE_OP_BACKWARD, 0, 0, 0}};
static const size_t both_starts[] = {0, 2, 4};

static dsc_pipe_schedule_options_t custom_options(void) {
  dsc_pipe_schedule_options_t options;
  WALK(DSC_OK, dsc_pipe_schedule_options_init(&options, sizeof options));
  options.stages = 2;
  options.micro_batches = 1;
  return options;
}

static void create_custom(void) {
  dsc_pipe_schedule_t* schedule = S;
  dsc_pipe_schedule_options_t options = custom_options();
  WALK_INVALID(dsc_pipe_schedule_create_custom(&options, both_orders, both_starts, NULL));
  WALK_INVALID(dsc_pipe_schedule_create_custom(NULL, both_orders, both_starts, &schedule));
  EXPECT(schedule == NULL);
  WALK_INVALID(dsc_pipe_schedule_create_custom(&options, NULL, both_starts, &schedule));
  WALK_INVALID(dsc_pipe_schedule_create_custom(&options, both_orders, NULL, &schedule));
  const size_t falling[] = {0, 4, 2};
  WALK_INVALID(dsc_pipe_schedule_create_custom(&options, both_orders, falling, &schedule));
  const size_t missing[] = {0, 2, 3};
  WALK_INVALID(dsc_pipe_schedule_create_custom(&options, both_orders, missing, &schedule));
  options.micro_batches = 2;
  WALK_INVALID(dsc_pipe_schedule_create_custom(&options, both_orders, both_starts, &schedule));
  options.micro_batches = INT32_MAX;
  WALK(DSC_ERR_OVERFLOW, dsc_pipe_schedule_create_custom(&options, both_orders, both_starts, &schedule));
  options = custom_options();
  options.placement = 3;
  WALK_INVALID(dsc_pipe_schedule_create_custom(&options, both_orders, both_starts, &schedule));
  options = custom_options();
  EXPECT(schedule == NULL);
  WALK(DSC_OK, dsc_pipe_schedule_create_custom(&options, both_orders, both_starts, &schedule));
  WALK(DSC_OK, dsc_pipe_schedule_destroy(schedule));
}

static void at_stage(void) {
  dsc_pipe_schedule_t* other = S;
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t, dsc_pipe_schedule_at_stage(bad, 0, &other));
  WALK_INVALID(dsc_pipe_schedule_at_stage(S, 0, NULL));
  WALK_INVALID(dsc_pipe_schedule_at_stage(S, 4, &other));
  WALK_INVALID(dsc_pipe_schedule_at_stage(S, -2, &other));
  EXPECT(other == NULL);
  WALK(DSC_OK, dsc_pipe_schedule_at_stage(S, -1, &other));
  dsc_pipe_instruction_t instruction = {.struct_size = sizeof instruction};
  int64_t steps = 99;
  WALK(DSC_ERR_STATE, dsc_pipe_schedule_next(other, &instruction));
  WALK(DSC_ERR_STATE, dsc_pipe_schedule_steps(other, &steps));
  EXPECT(steps == 99);
  WALK(DSC_OK, dsc_pipe_schedule_destroy(other));
}

static void describe(void) {
  dsc_pipe_schedule_info_t info = {.struct_size = sizeof info, .stages = 99};
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t, dsc_pipe_schedule_info(bad, &info));
  WALK_INVALID(dsc_pipe_schedule_info(S, NULL));
  info.struct_size = sizeof info - 1;
  WALK_INVALID(dsc_pipe_schedule_info(S, &info));
  EXPECT(info.stages == 99);
  info.struct_size = sizeof info;
  WALK(DSC_OK, dsc_pipe_schedule_info(S, &info));
  EXPECT(info.stages == 4 && info.stage == 1 && info.micro_batches == 8 && info.chunks == 1);
  EXPECT(info.placement == DSC_PIPE_PLACEMENT_LOOP && info.forward_only == 0 &&
         info.struct_size == sizeof info);
}

static void name(void) {
  char text[8] = "before";
  size_t bytes = 99;
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t,
                   dsc_pipe_schedule_name(bad, text, sizeof text, &bytes));
  WALK_INVALID(dsc_pipe_schedule_name(S, text, sizeof text, NULL));
  WALK_INVALID(dsc_pipe_schedule_name(S, NULL, 8, &bytes));
  WALK(DSC_OK, dsc_pipe_schedule_name(S, NULL, 0, &bytes));
  EXPECT(bytes == 5 && strcmp(text, "before") == 0);
  WALK(DSC_OK, dsc_pipe_schedule_name(S, text, sizeof text, &bytes));
  EXPECT(strcmp(text, "1f1b") == 0);
}

static void order(void) {
  dsc_pipe_compute_t operations[2] = {{99, 99, 99, 99}, {99, 99, 99, 99}};
  size_t total = 99;
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t,
                   dsc_pipe_schedule_order(bad, 0, 0, operations, 2, &total));
  WALK_INVALID(dsc_pipe_schedule_order(S, 4, 0, operations, 2, &total));
  WALK_INVALID(dsc_pipe_schedule_order(S, -1, 0, operations, 2, &total));
  WALK_INVALID(dsc_pipe_schedule_order(S, 0, 0, NULL, 2, &total));
  WALK_INVALID(dsc_pipe_schedule_order(S, 0, 0, operations, 2, NULL));
  EXPECT(total == 99 && operations[0].op == 99);
  WALK(DSC_TRUNCATED, dsc_pipe_schedule_order(S, 3, 0, operations, 1, &total));
  EXPECT(total == 16 && operations[0].op == DSC_PIPE_OP_FORWARD && operations[1].op == 99);
  WALK(DSC_OK, dsc_pipe_schedule_order(S, 3, 15, operations, 2, &total));
  EXPECT(total == 1 && operations[0].op == DSC_PIPE_OP_BACKWARD && operations[0].micro_batch == 7);
  EXPECT(operations[1].op == 99);
  WALK(DSC_OK, dsc_pipe_schedule_order(S, 3, SIZE_MAX, operations, 2, &total));
}

static void export_text(void) {
  char text[16] = "before";
  size_t bytes = 99;
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t,
                   dsc_pipe_schedule_export(bad, DSC_PIPE_FORMAT_JSON, text, sizeof text, &bytes));
  WALK_INVALID(dsc_pipe_schedule_export(S, 0, text, sizeof text, &bytes));
  WALK_INVALID(dsc_pipe_schedule_export(S, 6, text, sizeof text, &bytes));
  WALK_INVALID(dsc_pipe_schedule_export(S, DSC_PIPE_FORMAT_JSON, text, sizeof text, NULL));
  WALK_INVALID(dsc_pipe_schedule_export(S, DSC_PIPE_FORMAT_JSON, NULL, 1, &bytes));
  EXPECT(bytes == 99);
  WALK(DSC_TRUNCATED, dsc_pipe_schedule_export(S, DSC_PIPE_FORMAT_JSON, text, sizeof text, &bytes));
  EXPECT(bytes > sizeof text && text[0] == '{' && strlen(text) == sizeof text - 1);
}

static void import_text(void) {
  static const char text[] = "0F0,0B0\n1F0,1B0\n";
  const size_t bytes = sizeof text - 1;
  dsc_pipe_schedule_t* schedule = S;
  dsc_pipe_schedule_options_t options;
  WALK(DSC_OK, dsc_pipe_schedule_options_init(&options, sizeof options));
  WALK_INVALID(dsc_pipe_schedule_import(text, bytes, DSC_PIPE_FORMAT_PYTORCH, NULL, NULL));
  WALK_INVALID(dsc_pipe_schedule_import(NULL, bytes, DSC_PIPE_FORMAT_PYTORCH, NULL, &schedule));
  WALK_INVALID(dsc_pipe_schedule_import(text, bytes, 6, NULL, &schedule));
  WALK_INVALID(dsc_pipe_schedule_import(text, 0, DSC_PIPE_FORMAT_PYTORCH, NULL, &schedule));
  WALK_INVALID(dsc_pipe_schedule_import(text, bytes - 2, DSC_PIPE_FORMAT_PYTORCH, NULL, &schedule));
  options.stages = 2;
  WALK_INVALID(dsc_pipe_schedule_import(text, bytes, DSC_PIPE_FORMAT_PYTORCH, &options, &schedule));
  options.stages = 0;
  options.stage = 2;
  WALK_INVALID(dsc_pipe_schedule_import(text, bytes, DSC_PIPE_FORMAT_PYTORCH, &options, &schedule));
  EXPECT(schedule == NULL);
  options.stage = 1;
  WALK(DSC_OK, dsc_pipe_schedule_import(text, bytes, DSC_PIPE_FORMAT_PYTORCH, &options, &schedule));
  WALK(DSC_OK, dsc_pipe_schedule_destroy(schedule));
}

static dsc_pipe_instruction_t instruction_of(int32_t op, int32_t peer) {
  const dsc_pipe_instruction_t it = {sizeof it, 0, op, 0, 0, 0, peer, 0};
  return it;
}

static void validate(void) {
  dsc_pipe_instruction_t all[] = {
      instruction_of(DSC_PIPE_OP_LOAD_MICRO_BATCH, -1), instruction_of(DSC_PIPE_OP_FORWARD, -1),
      instruction_of(DSC_PIPE_OP_SEND_ACTIVATION, 1),   instruction_of(DSC_PIPE_OP_RECV_GRAD, 1),
      instruction_of(DSC_PIPE_OP_BACKWARD, -1),         instruction_of(DSC_PIPE_OP_RECV_ACTIVATION, 0),
      instruction_of(DSC_PIPE_OP_FORWARD, -1),          instruction_of(DSC_PIPE_OP_BACKWARD, -1),
      instruction_of(DSC_PIPE_OP_SEND_GRAD, 0)};
  const size_t starts[] = {0, 5, 9};
  const dsc_pipe_schedule_options_t options = custom_options();
  WALK_INVALID(dsc_pipe_validate(NULL, all, starts));
  WALK_INVALID(dsc_pipe_validate(&options, NULL, starts));
  WALK_INVALID(dsc_pipe_validate(&options, all, NULL));
  WALK(DSC_OK, dsc_pipe_validate(&options, all, starts));
  all[0].struct_size = 1;
  WALK_INVALID(dsc_pipe_validate(&options, all, starts));
  all[0].struct_size = sizeof all[0];
  all[2].peer = 0;
  WALK_INVALID(dsc_pipe_validate(&options, all, starts)); /* an invalid device */
  EXPECT(strstr(dsc_last_error_message(), "peer of instruction 2, send_activation, is 0, expected 1"));
  all[2].peer = 1;
  all[8].op = 99;
  WALK_INVALID(dsc_pipe_validate(&options, all, starts));
  const size_t shorter[] = {0, 5, 8};
  WALK_INVALID(dsc_pipe_validate(&options, all, shorter));
  EXPECT(strstr(dsc_last_error_message(), "waits for a send that stage 1 does not make"));
}

static void find(void) {
  dsc_pipe_schedule_t* schedule = S;
  dsc_pipe_search_options_t limits;
  WALK(DSC_OK, dsc_pipe_search_options_init(&limits, sizeof limits));
  dsc_pipe_search_result_t result = {.struct_size = sizeof result, .makespan = 99};
  dsc_pipe_schedule_options_t options = custom_options();
  options.micro_batches = 3;
  WALK_INVALID(dsc_pipe_search(&options, NULL, &limits, &result, NULL));
  WALK_INVALID(dsc_pipe_search(NULL, NULL, &limits, &result, &schedule));
  EXPECT(schedule == NULL);
  options.name = "1f1b";
  WALK_INVALID(dsc_pipe_search(&options, NULL, &limits, &result, &schedule));
  options.name = NULL;
  options.placement = DSC_PIPE_PLACEMENT_ZIGZAG;
  WALK_INVALID(dsc_pipe_search(&options, NULL, &limits, &result, &schedule));
  options.placement = 0;
  options.micro_batches = 0;
  WALK_INVALID(dsc_pipe_search(&options, NULL, &limits, &result, &schedule));
  options.micro_batches = 50000;
  WALK(DSC_ERR_OVERFLOW, dsc_pipe_search(&options, NULL, &limits, &result, &schedule));
  options.micro_batches = 3;
  limits.activations = -1;
  WALK_INVALID(dsc_pipe_search(&options, NULL, &limits, &result, &schedule));
  limits.activations = 2;
  limits.struct_size = sizeof limits - 1;
  WALK_INVALID(dsc_pipe_search(&options, NULL, &limits, &result, &schedule));
  limits.struct_size = sizeof limits;
  result.struct_size = sizeof result - 1;
  WALK_INVALID(dsc_pipe_search(&options, NULL, &limits, &result, &schedule));
  EXPECT(result.makespan == 99 && schedule == NULL);
  result.struct_size = sizeof result;
  WALK(DSC_OK, dsc_pipe_search(&options, NULL, &limits, &result, &schedule));
  EXPECT(result.is_optimal == 1 && result.makespan == 10 && result.bound <= 10);
  WALK(DSC_OK, dsc_pipe_schedule_destroy(schedule));
  WALK(DSC_OK, dsc_pipe_search(&options, NULL, NULL, NULL, &schedule));
  WALK(DSC_OK, dsc_pipe_schedule_destroy(schedule));
}

static void draw(void) {
  char text[16] = "before";
  size_t bytes = 99;
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t,
                   dsc_pipe_draw(bad, NULL, DSC_PIPE_PICTURE_SVG, text, sizeof text, &bytes));
  WALK_INVALID(dsc_pipe_draw(S, NULL, 0, text, sizeof text, &bytes));
  WALK_INVALID(dsc_pipe_draw(S, NULL, 5, text, sizeof text, &bytes));
  WALK_INVALID(dsc_pipe_draw(S, NULL, DSC_PIPE_PICTURE_SVG, text, sizeof text, NULL));
  WALK_INVALID(dsc_pipe_draw(S, NULL, DSC_PIPE_PICTURE_SVG, NULL, 1, &bytes));
  EXPECT(bytes == 99);
  WALK(DSC_TRUNCATED, dsc_pipe_draw(S, NULL, DSC_PIPE_PICTURE_SVG, text, sizeof text, &bytes));
  EXPECT(bytes > sizeof text && text[0] == '<' && strlen(text) == sizeof text - 1);
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
  WALK_INVALID(dsc_pipe_run_options_init(&options, sizeof options - 1));
  WALK(DSC_OK, dsc_pipe_run_options_init(&options, sizeof options));
  EXPECT(options.struct_size == sizeof options && options.inputs == NULL && options.n_outputs == 0);
  EXPECT(options.memory == NULL && options.memory_bytes == 0 && options.variable_shapes == 0);
}

static void run_bytes(void) {
  dsc_pipe_run_options_t options;
  WALK(DSC_OK, dsc_pipe_run_options_init(&options, sizeof options));
  const int64_t shape[] = {3, 5};
  const dsc_tensor_t tensor = {.struct_size = sizeof tensor,
                               .count = 15,
                               .shape = shape,
                               .dtype = DSC_DTYPE_F32,
                               .ndim = 2,
                               .device = -1};
  size_t bytes = 77;
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t, dsc_pipe_run_bytes(bad, &options, &bytes));
  WALK_INVALID(dsc_pipe_run_bytes(S, &options, NULL));
  WALK_INVALID(dsc_pipe_run_bytes(S, NULL, &bytes));
  WALK_INVALID(dsc_pipe_run_bytes(S, &options, &bytes)); /* a stage in the middle needs inputs and outputs */
  options.inputs = options.outputs = &tensor;
  options.n_inputs = options.n_outputs = 1;
  options.struct_size = 39;
  WALK_INVALID(dsc_pipe_run_bytes(S, &options, &bytes));
  options.struct_size = sizeof options;
  options.variable_shapes = -1;
  WALK_INVALID(dsc_pipe_run_bytes(S, &options, &bytes));
  options.variable_shapes = 1;
  options.keep_replaced = 2;
  WALK_INVALID(dsc_pipe_run_bytes(S, &options, &bytes));
  options.keep_replaced = 0;
  options.memory_bytes = 1;
  WALK_INVALID(dsc_pipe_run_bytes(S, &options, &bytes));
  options.memory_bytes = 0;
  EXPECT(bytes == 77);
  for (int i = 0; i < 2; ++i) { /* in the second round `bytes` has the result of the first one */
    dsc_pipe_instruction_t first = {.struct_size = sizeof first}, again = first;
    WALK(DSC_OK, dsc_pipe_run_bytes(S, &options, &bytes));
    WALK(DSC_OK, dsc_pipe_schedule_next(S, &first));
    WALK(DSC_OK, dsc_pipe_schedule_reset(S));
    WALK(DSC_OK, dsc_pipe_schedule_next(S, &again));
    EXPECT(memcmp(&first, &again, sizeof first) == 0);
  }
  EXPECT(bytes >= 4 * sizeof(float) * 15 && bytes % 128 == 127);
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
  WALK_INVALID(dsc_pipe_run(schedule, W, &callbacks, &options, &mean)); /* no callback for the computation */
  options.struct_size = 1;
  WALK_INVALID(dsc_pipe_run(schedule, W, &callbacks, &options, &mean));
  options.struct_size = sizeof options;
  options.n_inputs = 1;
  WALK_INVALID(dsc_pipe_run(schedule, W, &callbacks, &options, &mean));
  options.n_inputs = 0;
  callbacks.load_micro_batch = callbacks.forward = callbacks.backward = do_nothing;
  callbacks.reduce_grads = callbacks.optimizer_step = do_nothing;
  /* the schedule is for a stage of another pipeline */
  WALK_INVALID(dsc_pipe_run(S, W, &callbacks, &options, &mean));
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
    {"dsc_pipe_schedule_create_custom", create_custom},
    {"dsc_pipe_schedule_at_stage", at_stage},
    {"dsc_pipe_schedule_info", describe},
    {"dsc_pipe_schedule_name", name},
    {"dsc_pipe_schedule_order", order},
    {"dsc_pipe_schedule_export", export_text},
    {"dsc_pipe_schedule_import", import_text},
    {"dsc_pipe_validate", validate},
    {"dsc_pipe_search", find},
    {"dsc_pipe_draw", draw},
    {"dsc_pipe_schedule_next", next},
    {"dsc_pipe_schedule_reset", reset},
    {"dsc_pipe_schedule_steps", steps},
    {"dsc_pipe_schedule_step", step},
    {"dsc_pipe_schedule_buffers", buffers},
    {"dsc_pipe_callbacks_init", callbacks_init},
    {"dsc_pipe_run_options_init", run_options_init},
    {"dsc_pipe_run_bytes", run_bytes},
    {"dsc_pipe_run", run},
    {"dsc_pipe_schedule_destroy", destroy},
    {NULL, NULL},
};
