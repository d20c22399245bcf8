/*
 * A pipeline whose stages multiply by 2: with 4 ranks a number x becomes 16 x.
 *
 *   dscrun -n 4 -- ./09_pipeline
 *
 * Stage 0 prints its schedule; then all stages run their schedules.
 */
#include <string.h>

#include "check.h"

enum { MICRO_BATCHES = 4 };

/* A stage computes y = weight x. The loss of a micro-batch is the last stage's y. */
typedef struct stage {
  double weight;
  double weight_grad;
  double x[MICRO_BATCHES]; /* inputs of the first stage */
} stage_t;

/* Called on the first stage for inputs, and on the last stage for labels, which are not needed here. */
static int32_t load(void* context, const dsc_pipe_call_t* call) {
  stage_t* stage = context;
  const int32_t m = call->instruction->micro_batch;
  stage->x[m] = m + 1.0;
  return 0;
}

static double input(const stage_t* stage, const dsc_pipe_call_t* call) {
  return call->inputs != NULL ? *(const double*)call->inputs[0] : stage->x[call->instruction->micro_batch];
}

static int32_t forward(void* context, const dsc_pipe_call_t* call) {
  const stage_t* stage = context;
  const double y = stage->weight * input(stage, call);
  if (call->outputs != NULL) *(double*)call->outputs[0] = y; /* sent when the schedule says so */
  if (call->loss != NULL) *call->loss = y;
  return 0;
}

static int32_t backward(void* context, const dsc_pipe_call_t* call) {
  stage_t* stage = context;
  const double grad =
      call->output_grads != NULL ? *(const double*)call->output_grads[0] : 1.0 / MICRO_BATCHES;
  stage->weight_grad += input(stage, call) * grad;
  if (call->input_grads != NULL) *(double*)call->input_grads[0] = stage->weight * grad;
  return 0;
}

/* Prints a line per step, such as "step 1: send_activation 0 to 1, load_micro_batch 1, forward 1". */
static void print_instructions(dsc_pipe_schedule_t* schedule) {
  dsc_pipe_instruction_t instruction = {.struct_size = sizeof instruction};
  int64_t step = -1;
  dsc_result_t result;
  while ((result = dsc_pipe_schedule_next(schedule, &instruction)) == DSC_OK) {
    const char* name = dsc_pipe_op_name(instruction.op);
    if (instruction.step != step)
      printf("%sstep %lld: %s", step < 0 ? "" : "\n", (long long)instruction.step, name);
    else
      printf(", %s", name);
    if (instruction.micro_batch >= 0) printf(" %d", instruction.micro_batch);
    if (instruction.peer >= 0)
      printf(" %s %d", strncmp(name, "send", 4) == 0 ? "to" : "from", instruction.peer);
    step = instruction.step;
  }
  printf("\n");
  EXPECT(result == DSC_DONE);
}

static dsc_pipe_schedule_t* make_schedule(int32_t stages, int32_t stage) {
  dsc_pipe_schedule_options_t options;
  CHECK(dsc_pipe_schedule_options_init(&options, sizeof options));
  options.name = "1f1b";
  options.stages = stages;
  options.stage = stage;
  options.micro_batches = MICRO_BATCHES;
  dsc_pipe_schedule_t* schedule = NULL;
  CHECK(dsc_pipe_schedule_create(&options, &schedule));
  return schedule;
}

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  int32_t size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_size(world, &size));
  dsc_pipe_schedule_t* schedule = make_schedule(size, rank);
  if (rank == 0) print_instructions(schedule);

  stage_t stage = {.weight = 2.0};
  /* The other callbacks are NULL, because there are no shared weights, no other replicas, and no
   * optimizer. */
  const dsc_pipe_callbacks_t callbacks = {.struct_size = sizeof callbacks,
                                          .context = &stage,
                                          .load_micro_batch = load,
                                          .forward = forward,
                                          .backward = backward};
  const int64_t shape[] = {1}; /* what two stages exchange */
  dsc_tensor_t number = dsc_tensor_on_host(NULL, 1, DSC_DTYPE_F64);
  number.shape = shape;
  number.ndim = 1;
  dsc_pipe_run_options_t options;
  CHECK(dsc_pipe_run_options_init(&options, sizeof options));
  options.inputs = &number;
  options.n_inputs = rank > 0;
  options.outputs = &number;
  options.n_outputs = rank < size - 1;

  double mean_loss = 0;
  CHECK(dsc_pipe_run(schedule, world, &callbacks, &options, &mean_loss));
  EXPECT(mean_loss == (double)(1 << size) * 2.5); /* x is 1, 2, 3, 4 */
  EXPECT(stage.weight_grad == mean_loss / 2);
  printf("stage %d: mean loss %g, gradient of its weight %g\n", rank, mean_loss, stage.weight_grad);

  CHECK(dsc_pipe_schedule_destroy(schedule));
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
