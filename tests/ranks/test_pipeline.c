/* Runs schedules with blocking sends and receives, one rank per stage. No rank may hang, and every message
 * must be the one that the instruction names. */
#include <string.h>

#include "cmocka_c.h"
#include "ranks.h"
#include "repetitions.h"

enum { STAGES = 8, MICRO_BATCHES = 16 };

typedef enum { ACTIVATION = 1, GRADIENT = 2 } kind_t;

/* Activations and gradients have separate channels. */
typedef struct channels {
  dsc_comm_t* activations;
  dsc_comm_t* gradients;
} channels_t;

static int send_message(rank_t* self, dsc_comm_t* channel, kind_t kind, const dsc_pipe_instruction_t* it) {
  const int32_t message[3] = {kind, self->rank, it->micro_batch};
  CHECK_OK(self, dsc_send(channel, message, 3, DSC_DTYPE_I32, it->peer, NULL, NULL));
  return 0;
}

static int recv_message(rank_t* self, dsc_comm_t* channel, kind_t kind, const dsc_pipe_instruction_t* it) {
  int32_t message[3] = {0};
  CHECK_OK(self, dsc_recv(channel, message, 3, DSC_DTYPE_I32, it->peer, NULL, NULL));
  if (message[0] != (int32_t)kind || message[1] != it->peer || message[2] != it->micro_batch)
    FAIL(self, "kind %d of stage %d, micro-batch %d came; expected %d of %d, %d", message[0], message[1],
         message[2], (int)kind, it->peer, it->micro_batch);
  return 0;
}

/* The data that this stage has for a micro-batch. */
enum { HAS_INPUT = 1, HAS_FORWARD = 2, HAS_OUTPUT_GRAD = 4, HAS_BACKWARD = 8 };

typedef struct stage {
  channels_t channels;
  unsigned has[MICRO_BATCHES];
} stage_t;

static int carry_out(rank_t* self, stage_t* stage, const dsc_pipe_instruction_t* it) {
  unsigned* has = it->micro_batch < 0 ? NULL : &stage->has[it->micro_batch];
  switch (it->op) {
    case DSC_PIPE_OP_RECV_ACTIVATION:
      *has |= HAS_INPUT;
      return recv_message(self, stage->channels.activations, ACTIVATION, it);
    case DSC_PIPE_OP_RECV_GRAD:
      *has |= HAS_OUTPUT_GRAD;
      return recv_message(self, stage->channels.gradients, GRADIENT, it);
    case DSC_PIPE_OP_SEND_ACTIVATION:
      CHECK(self, (*has & HAS_FORWARD) != 0);
      return send_message(self, stage->channels.activations, ACTIVATION, it);
    case DSC_PIPE_OP_SEND_GRAD:
      CHECK(self, (*has & HAS_BACKWARD) != 0);
      return send_message(self, stage->channels.gradients, GRADIENT, it);
    case DSC_PIPE_OP_FORWARD:
      CHECK(self, (*has & HAS_INPUT) != 0 || self->rank == 0);
      *has |= HAS_FORWARD;
      return 0;
    case DSC_PIPE_OP_BACKWARD:
      CHECK(self, (*has & HAS_OUTPUT_GRAD) != 0 || self->rank == self->size - 1);
      *has |= HAS_BACKWARD;
      return 0;
    default:
      return 0;
  }
}

static int run_schedule(rank_t* self, stage_t* stage, const char* name, int32_t micro_batches) {
  dsc_pipe_schedule_options_t options;
  CHECK_OK(self, dsc_pipe_schedule_options_init(&options, sizeof options));
  options.name = name;
  options.stages = self->size;
  options.stage = self->rank;
  options.micro_batches = micro_batches;
  dsc_pipe_schedule_t* schedule = NULL;
  CHECK_OK(self, dsc_pipe_schedule_create(&options, &schedule));
  memset(stage->has, 0, sizeof stage->has);
  dsc_pipe_instruction_t it = {.struct_size = sizeof it};
  dsc_result_t result = dsc_pipe_schedule_next(schedule, &it);
  for (; result == DSC_OK; result = dsc_pipe_schedule_next(schedule, &it))
    if (carry_out(self, stage, &it) != 0)
      FAIL(self, "%s, %d micro-batches, %s of %d", name, micro_batches, dsc_pipe_op_name(it.op),
           it.micro_batch);
  CHECK_RESULT(self, DSC_DONE, result);
  for (int32_t m = 0; m < micro_batches; ++m) CHECK(self, (stage->has[m] & HAS_FORWARD) != 0);
  CHECK_OK(self, dsc_pipe_schedule_destroy(schedule));
  return 0;
}

static int every_schedule_body(rank_t* self) {
  static const char* const names[] = {"deepspeed_train", "deepspeed_inference", "gpipe", "1f1b"};
  stage_t stage = {0};
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &stage.channels.activations));
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &stage.channels.gradients));
  const int32_t most = (int32_t)(MICRO_BATCHES / test_scale());
  for (int32_t micro_batches = 1; micro_batches <= most; ++micro_batches)
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
      PASS_ON(run_schedule(self, &stage, names[i], micro_batches));
  CHECK_OK(self, dsc_comm_destroy(stage.channels.activations));
  CHECK_OK(self, dsc_comm_destroy(stage.channels.gradients));
  return 0;
}

static void every_schedule(void** state) {
  (void)state;
  for (int32_t stages = 1; stages <= STAGES; ++stages)
    assert_int_equal(run_ranks(stages, every_schedule_body, NULL), 0);
}

/* Two threads advance one schedule. One of them gets BUSY, unless the calls did not overlap. */
static int one_thread_at_a_time_body(rank_t* self) {
  static dsc_pipe_schedule_t* shared;
  const int rounds = test_repetitions(20000, 1000);
  if (self->rank == 0) {
    dsc_pipe_schedule_options_t options;
    CHECK_OK(self, dsc_pipe_schedule_options_init(&options, sizeof options));
    options.name = "data_parallel";
    options.stages = 1;
    options.micro_batches = INT32_MAX;
    CHECK_OK(self, dsc_pipe_schedule_create(&options, &shared));
  }
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  dsc_pipe_instruction_t it = {.struct_size = sizeof it};
  for (int i = 0; i < rounds; ++i) {
    const dsc_result_t result =
        i % 64 == 0 ? dsc_pipe_schedule_reset(shared) : dsc_pipe_schedule_next(shared, &it);
    if (result != DSC_ERR_BUSY) CHECK_RESULT(self, DSC_OK, result);
    int64_t steps = 0;
    CHECK_OK(self, dsc_pipe_schedule_steps(shared, &steps));
    CHECK(self, steps == INT32_MAX);
  }
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  if (self->rank == 0) CHECK_OK(self, dsc_pipe_schedule_destroy(shared));
  return 0;
}

static void one_thread_at_a_time(void** state) {
  (void)state;
  if (ranks_are_processes()) return; /* the schedule belongs to one process */
  assert_int_equal(run_ranks(2, one_thread_at_a_time_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_schedule),
      cmocka_unit_test(one_thread_at_a_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
