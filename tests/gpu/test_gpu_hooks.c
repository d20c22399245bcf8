/* Hooks on devices give the same bits as in host memory. Every rank trains two models with the same
 * gradients, one in each memory. */
#include <stdlib.h>
#include <string.h>

#include "both_memories.h"
#include "cmocka_c.h"

static int train_both(rank_t* self, const settings_t* settings) {
  model_t models[MEMORIES];
  for (int m = 0; m < MEMORIES; ++m) PASS_ON(make(self, settings, m, &models[m]));
  for (int step = 0; step < STEPS; ++step) {
    for (int m = 0; m < MEMORIES; ++m) PASS_ON(iterate(self, settings, &models[m], step));
    PASS_ON(compare(self, settings, models, step));
  }
  for (int m = 0; m < MEMORIES; ++m) PASS_ON(drop(self, &models[m]));
  return 0;
}

static int hooks_body(rank_t* self) {
  static const char* const hooks[] = {
      "fp16",
      "bf16",
      "fp8(block=64)",
      "int8(error_feedback=1)",
      "int4(block=32, error_feedback=1)",
      "onebit",
      "topk(ratio=0.05)",
      "fp16(topk(ratio=0.1))",
      "powersgd(rank=2, start_iteration=2)",
      "bf16(powersgd(rank=1, start_iteration=0))",
      "local_sgd(start_iteration=2)",
      "local_sgd(start_iteration=1, within_host=0)",
  };
  for (size_t h = 0; h < sizeof hooks / sizeof *hooks; ++h) {
    const settings_t settings = {DSC_DTYPE_F32, 0, DSC_AVERAGE_PRE, hooks[h]};
    PASS_ON(train_both(self, &settings));
  }
  return 0;
}

static void hooks_give_the_bits_of_the_host(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, hooks_body, NULL), 0);
}

/* The sums are exact, so that dividing and multiplying the gradients give the same result. */
static int plain_body(rank_t* self) {
  static const settings_t all[] = {{DSC_DTYPE_F32, 0, DSC_AVERAGE_PRE, "allreduce"},
                                   {DSC_DTYPE_BF16, 0, DSC_AVERAGE_PRE, "allreduce"},
                                   {DSC_DTYPE_F8E4M3, 0, DSC_AVERAGE_PRE, "allreduce"},
                                   {DSC_DTYPE_F8E5M2, 0, DSC_AVERAGE_PRE, "allreduce"}};
  for (size_t k = 0; k < sizeof all / sizeof *all; ++k) PASS_ON(train_both(self, &all[k]));
  return 0;
}

static void the_plain_hook_takes_all_floats(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, plain_body, NULL), 0);
}

/* A hook's state from a device can be used in host memory, and the other way round. */
static int state_body(rank_t* self) {
  static const char* const hooks[] = {"int8(error_feedback=1)", "topk(ratio=0.05)",
                                      "powersgd(rank=2, start_iteration=1)", "onebit"};
  for (size_t h = 0; h < sizeof hooks / sizeof *hooks; ++h) {
    const settings_t settings = {DSC_DTYPE_F32, 0, DSC_AVERAGE_PRE, hooks[h]};
    model_t models[MEMORIES];
    char* states[MEMORIES];
    size_t bytes[MEMORIES];
    for (int m = 0; m < MEMORIES; ++m) {
      PASS_ON(make(self, &settings, m, &models[m]));
      for (int step = 0; step < 3; ++step) PASS_ON(iterate(self, &settings, &models[m], step));
      dsc_bucket_reducer_save_hook(models[m].reducer, NULL, 0, &bytes[m]);
      CHECK(self, bytes[m] > 0 && (states[m] = malloc(bytes[m])) != NULL);
      CHECK_OK(self, dsc_bucket_reducer_save_hook(models[m].reducer, states[m], bytes[m], &bytes[m]));
    }
    CHECK(self, bytes[0] == bytes[1] && memcmp(states[0], states[1], bytes[0]) == 0);
    for (int m = 0; m < MEMORIES; ++m) {
      PASS_ON(drop(self, &models[m]));
      PASS_ON(make(self, &settings, m, &models[m]));
      CHECK_OK(self, dsc_bucket_reducer_load_hook(models[m].reducer, states[1 - m], bytes[m]));
    }
    for (int step = 3; step < STEPS; ++step) {
      for (int m = 0; m < MEMORIES; ++m) PASS_ON(iterate(self, &settings, &models[m], step));
      PASS_ON(compare(self, &settings, models, step));
    }
    for (int m = 0; m < MEMORIES; ++m) {
      PASS_ON(drop(self, &models[m]));
      free(states[m]);
    }
  }
  return 0;
}

static void states_of_hooks_fit_both_memories(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, state_body, NULL), 0);
}

/* A user-defined hook that returns a work. The library is ordered after the work without a wait. */
static int32_t sum_bucket(void* context, const dsc_bucket_t* bucket, dsc_work_t** work) {
  (void)context;
  if (bucket->step > 0) return 0;
  return dsc_all_reduce(bucket->comm, bucket->buffer, bucket->buffer, bucket->count, bucket->dtype,
                        DSC_OP_SUM, bucket->stream, work);
}

static int own_body(rank_t* self) {
  const settings_t settings = {DSC_DTYPE_F32, 0, DSC_AVERAGE_PRE, NULL};
  model_t model;
  PASS_ON(make(self, &settings, 1, &model));
  CHECK_OK(self, dsc_bucket_reducer_set_hook(model.reducer, sum_bucket, NULL, "sum"));
  for (int step = 0; step < STEPS; ++step) {
    if (self->rank == 1) PASS_ON(ranks_await(self, step + 1));
    PASS_ON(begin_to_finish(self, &settings, &model, step));
    if (self->rank == 0) ranks_note(self, step + 1);
    CHECK_OK(self, dsc_bucket_reducer_synchronize(model.reducer, -1));
    float came[MOST], mine[MOST], wanted = 0;
    PASS_ON(get(self, &model, came, model.grads[0], count_of(0) * sizeof(float)));
    for (int rank = 0; rank < self->size; ++rank) {
      fill(mine, DSC_DTYPE_F32, rank, step, 0);
      wanted += mine[5];
    }
    if (came[5] != wanted) FAIL(self, "step %d: %g, expected %g", step, (double)came[5], (double)wanted);
  }
  return drop(self, &model);
}

static void the_result_comes_behind_a_work_of_a_hook(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, own_body, NULL), 0);
}

/* An iteration that is refused during a capture has no effect. */
static int capture_body(rank_t* self) {
  const settings_t settings = {DSC_DTYPE_F32, 0, DSC_AVERAGE_PRE, "int8"};
  model_t model;
  PASS_ON(make(self, &settings, 1, &model));
  CHECK(self, gpu_begin_capture(model.stream));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_bucket_reducer_begin(model.reducer, model.stream));
  CHECK(self,
        strstr(dsc_last_error_message(),
               "the stream is being captured in a graph, expected another stream: hook int8 computes on "
               "the host") != NULL);
  gpu_graph_free(gpu_end_capture(model.stream));
  PASS_ON(iterate(self, &settings, &model, 0));
  return drop(self, &model);
}

/* The library's own 16-bit types can be captured. */
static int graph_body(rank_t* self) {
  const settings_t settings = {DSC_DTYPE_F32, 0, DSC_AVERAGE_PRE, "fp16"};
  model_t models[MEMORIES];
  char values[MOST * sizeof(float)];
  for (int m = 0; m < MEMORIES; ++m) PASS_ON(make(self, &settings, m, &models[m]));
  const model_t* const device = &models[1];
  PASS_ON(iterate(self, &settings, device, 0));
  CHECK(self, gpu_begin_capture(device->stream));
  CHECK_OK(self, dsc_bucket_reducer_begin(device->reducer, device->stream));
  for (int p = PARAMS; p-- > 0;)
    CHECK_OK(self,
             dsc_bucket_reducer_mark_ready(device->reducer, (size_t)p, device->grads[p], device->stream));
  CHECK_OK(self, dsc_bucket_reducer_finish(device->reducer, device->stream));
  void* const graph = gpu_end_capture(device->stream);
  CHECK(self, graph != NULL);
  for (int step = 1; step < 3; ++step) {
    PASS_ON(iterate(self, &settings, &models[0], step));
    for (int p = 0; p < PARAMS; ++p) {
      fill(values, DSC_DTYPE_F32, self->rank, step, p);
      PASS_ON(put(self, device, device->grads[p], values, count_of(p) * sizeof(float)));
    }
    CHECK(self, gpu_run_graph(graph, device->stream) && gpu_synchronize(device->stream));
    PASS_ON(compare_views(self, &settings, models, step));
  }
  gpu_graph_free(graph);
  for (int m = 0; m < MEMORIES; ++m) PASS_ON(drop(self, &models[m]));
  return 0;
}

static void hooks_in_a_graph(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) {
    assert_int_equal(run_ranks(size, capture_body, NULL), 0);
    assert_int_equal(run_ranks(size, graph_body, NULL), 0);
  }
}

/* Rank 1's gradients are ordered after a broadcast that rank 0 does not call in time. Rank 0 has a longer
 * time-out, so that rank 1 notices first, whichever rank begins first. Rank 0 has begun before rank 1's time
 * starts.
 */
static int stuck_body(rank_t* self) {
  const settings_t settings = {DSC_DTYPE_F32, 0, DSC_AVERAGE_PRE, "topk"};
  dsc_comm_t* other = NULL;
  model_t model;
  float* const late = gpu_alloc(64);
  CHECK(self, late != NULL);
  CHECK_OK(self, dsc_comm_split(self->world, 0, self->rank, NULL, &other));
  CHECK_OK(self, dsc_broadcast(other, late, late, 16, DSC_DTYPE_F32, 0, NULL, NULL));
  if (self->rank == 1) CHECK_OK(self, dsc_comm_set_timeout(self->world, SHORT_TIMEOUT_MS));
  PASS_ON(ranks_meet(self));
  PASS_ON(make(self, &settings, 1, &model));
  CHECK_OK(self, dsc_bucket_reducer_begin(model.reducer, model.stream));
  for (int p = 0; p < PARAMS; ++p) {
    char values[MOST * sizeof(float)] = {0};
    PASS_ON(put(self, &model, model.grads[p], values, count_of(p) * sizeof(float)));
  }
  PASS_ON(ranks_meet(self));
  if (self->rank == 1)
    CHECK_OK(self, dsc_broadcast(other, late, late, 16, DSC_DTYPE_F32, 0, model.stream, NULL));
  dsc_result_t failed = DSC_OK;
  for (int p = PARAMS; p-- > 0 && failed == DSC_OK;)
    failed = dsc_bucket_reducer_mark_ready(model.reducer, (size_t)p, model.grads[p], model.stream);
  if (failed == DSC_OK) failed = dsc_bucket_reducer_finish(model.reducer, model.stream);
  if (failed != DSC_ERR_TIMEOUT || !strstr(dsc_last_error_message(), "rank 1"))
    FAIL(self, "%d: %s", failed, dsc_last_error_message());
  if (self->rank == 1)
    CHECK(self, strstr(dsc_last_error_message(), "the gradients of rank 1 were not ready"));
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_bucket_reducer_begin(model.reducer, model.stream));
  if (self->rank == 0)
    CHECK_OK(self, dsc_broadcast(other, late, late, 16, DSC_DTYPE_F32, 0, model.stream, NULL));
  CHECK(self, gpu_synchronize(model.stream));
  PASS_ON(drop(self, &model));
  CHECK_OK(self, dsc_comm_destroy(other));
  gpu_free(late);
  return 0;
}

static void a_device_that_does_not_get_there(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, stuck_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hooks_give_the_bits_of_the_host),
      cmocka_unit_test(the_plain_hook_takes_all_floats),
      cmocka_unit_test(states_of_hooks_fit_both_memories),
      cmocka_unit_test(the_result_comes_behind_a_work_of_a_hook),
      cmocka_unit_test(hooks_in_a_graph),
      cmocka_unit_test(a_device_that_does_not_get_there),
  };
  return cmocka_run_group_tests_name("gpu_hooks", tests, NULL, NULL);
}
