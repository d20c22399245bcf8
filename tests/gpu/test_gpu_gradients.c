/* Clipping and types of buckets on devices, compared with host memory. */
#include <math.h>
#include <string.h>

#include "both_memories.h"
#include "cmocka_c.h"

/* ---- clipping: squares of small types are exact, so the norm equals the host's to the last bit ---- */

static int clip(rank_t* self, const model_t* model, int32_t norm, double* found) {
  static const uint8_t counted[PARAMS] = {1, 1, 0, 1, 1, 1};
  dsc_clip_options_t options;
  CHECK_OK(self, dsc_clip_options_init(&options, sizeof options));
  options.max_norm = 0.375;
  options.scale = -0.5;
  options.norm = norm;
  options.shards = self->world;
  options.counted = counted;
  CHECK_OK(self, dsc_bucket_reducer_clip(model->reducer, &options, found));
  return 0;
}

static int clip_both(rank_t* self, const settings_t* settings, const model_t models[MEMORIES], int32_t norm) {
  double found[MEMORIES];
  for (int m = 0; m < MEMORIES; ++m) {
    PASS_ON(iterate(self, settings, &models[m], norm));
    PASS_ON(clip(self, &models[m], norm, &found[m]));
    if (models[m].memory == 1) CHECK(self, gpu_synchronize(models[m].stream));
  }
  const bool is_exact = norm == DSC_NORM_MAX || bytes_of(settings->dtype) < 4;
  const double apart = fabs(found[1] - found[0]) / found[0];
  if (!(apart <= (is_exact ? 0 : 1e-12)))
    FAIL(self, "type %d, norm %d: %.17g, expected %.17g", settings->dtype, norm, found[1], found[0]);
  return is_exact ? compare(self, settings, models, norm) : 0;
}

static int clip_body(rank_t* self) {
  static const int32_t types[] = {DSC_DTYPE_F32, DSC_DTYPE_F64, DSC_DTYPE_F16, DSC_DTYPE_BF16,
                                  DSC_DTYPE_F8E4M3};
  for (size_t t = 0; t < sizeof types / sizeof *types; ++t) {
    const settings_t settings = {types[t], 0, DSC_AVERAGE_NONE, NULL};
    model_t models[MEMORIES];
    for (int m = 0; m < MEMORIES; ++m) PASS_ON(make(self, &settings, m, &models[m]));
    PASS_ON(clip_both(self, &settings, models, DSC_NORM_TWO));
    PASS_ON(clip_both(self, &settings, models, DSC_NORM_MAX));
    for (int m = 0; m < MEMORIES; ++m) PASS_ON(drop(self, &models[m]));
  }
  return 0;
}

/* A gradient on the last rank is not finite. All ranks get that norm, and nothing is changed. */
static int clip_nonfinite_body(rank_t* self) {
  const settings_t settings = {DSC_DTYPE_F32, 0, DSC_AVERAGE_PRE, NULL};
  const float values[] = {NAN, INFINITY, -INFINITY};
  model_t models[MEMORIES];
  for (int m = 0; m < MEMORIES; ++m) PASS_ON(make(self, &settings, m, &models[m]));
  for (size_t v = 0; v < sizeof values / sizeof *values; ++v)
    for (int32_t norm = DSC_NORM_TWO; norm <= DSC_NORM_MAX; ++norm) {
      double found[MEMORIES];
      for (int m = 0; m < MEMORIES; ++m) {
        const float one = self->rank == self->size - 1 ? values[v] : 1;
        CHECK_OK(self, dsc_bucket_reducer_begin(models[m].reducer, models[m].stream));
        for (size_t p = 1; p < PARAMS; ++p)
          CHECK_OK(self, dsc_bucket_reducer_mark_unused(models[m].reducer, p));
        for (size_t i = 0; i < count_of(0); ++i) {
          const float value = i == 7 ? one : 2;
          PASS_ON(put(self, &models[m], models[m].grads[0] + i * sizeof value, &value, sizeof value));
        }
        CHECK_OK(self,
                 dsc_bucket_reducer_mark_ready(models[m].reducer, 0, models[m].grads[0], models[m].stream));
        CHECK_OK(self, dsc_bucket_reducer_finish(models[m].reducer, models[m].stream));
        PASS_ON(clip(self, &models[m], norm, &found[m]));
        float second = 0;
        PASS_ON(get(self, &models[m], &second, models[m].grads[0] + sizeof second, sizeof second));
        CHECK(self, second == 2);
      }
      if (isnan(found[0]) ? !isnan(found[1]) : found[0] != found[1])
        FAIL(self, "%g, norm %d: %g, expected %g", (double)values[v], norm, found[1], found[0]);
    }
  for (int m = 0; m < MEMORIES; ++m) PASS_ON(drop(self, &models[m]));
  return 0;
}

static void clipping_gives_the_bits_of_the_host(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) {
    assert_int_equal(run_ranks(size, clip_body, NULL), 0);
    assert_int_equal(run_ranks(size, clip_nonfinite_body, NULL), 0);
  }
}

/* Clipping is ordered after the work on the stream after finish, and before later work. */
static int clip_order_body(rank_t* self) {
  const settings_t settings = {DSC_DTYPE_F32, 0, DSC_AVERAGE_PRE, NULL};
  float values[MOST], came[MOST];
  float *const late = gpu_alloc(64), *const wanted = gpu_alloc(sizeof values),
               *const kept = gpu_alloc(sizeof values);
  CHECK(self, late && wanted && kept);
  for (size_t i = 0; i < MOST; ++i) values[i] = 8;
  CHECK(self, gpu_upload(wanted, values, sizeof values));
  model_t model;
  PASS_ON(make(self, &settings, 1, &model));
  PASS_ON(begin_to_finish(self, &settings, &model, 0));
  if (self->rank == 0) PASS_ON(ranks_await(self, 1));
  CHECK_OK(self, dsc_broadcast(self->world, late, late, 16, DSC_DTYPE_F32, 0, model.stream, NULL));
  for (size_t p = 0; p < PARAMS; ++p) {
    void* view = NULL;
    CHECK_OK(self, dsc_bucket_reducer_grad_view(model.reducer, p, &view));
    CHECK(self, gpu_copy(view, wanted, count_of((int)p) * sizeof(float), model.stream));
  }
  if (self->rank == 1) ranks_note(self, 1);
  double norm = 0;
  dsc_clip_options_t options;
  CHECK_OK(self, dsc_clip_options_init(&options, sizeof options));
  options.norm = DSC_NORM_MAX;
  options.scale = 0.25;
  CHECK_OK(self, dsc_bucket_reducer_clip(model.reducer, &options, &norm));
  CHECK(self, gpu_copy(kept, model.grads[2], count_of(2) * sizeof(float), model.stream));
  CHECK(self, gpu_synchronize(model.stream) && gpu_download(came, kept, count_of(2) * sizeof(float)));
  if (norm != 2 || came[0] != 2) FAIL(self, "norm %g, gradient %g, expected 2", norm, (double)came[0]);
  PASS_ON(drop(self, &model));
  gpu_free(late);
  gpu_free(wanted);
  gpu_free(kept);
  return 0;
}

static void clipping_is_ordered_on_the_stream_of_finish(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, clip_order_body, NULL), 0);
}

static int clip_capture_body(rank_t* self) {
  const settings_t settings = {DSC_DTYPE_F32, 0, DSC_AVERAGE_PRE, NULL};
  model_t model;
  double norm = 0;
  PASS_ON(make(self, &settings, 1, &model));
  PASS_ON(iterate(self, &settings, &model, 0));
  CHECK(self, gpu_begin_capture(model.stream));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_bucket_reducer_clip(model.reducer, NULL, &norm));
  CHECK(self, strstr(dsc_last_error_message(), "the stream of finish is being captured in a graph") != NULL);
  gpu_graph_free(gpu_end_capture(model.stream));
  PASS_ON(clip(self, &model, DSC_NORM_TWO, &norm));
  return drop(self, &model);
}

static void clipping_is_not_captured(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, clip_capture_body, NULL), 0);
}

/* Rank 1 clips after a broadcast that rank 0 does not call in time. */
static int clip_stuck_body(rank_t* self) {
  const settings_t settings = {DSC_DTYPE_F32, 0, DSC_AVERAGE_PRE, NULL};
  dsc_comm_t* other = NULL;
  model_t model;
  double norm = 0;
  float* const late = gpu_alloc(64);
  CHECK(self, late != NULL);
  CHECK_OK(self, dsc_comm_split(self->world, 0, self->rank, NULL, &other));
  CHECK_OK(self, dsc_broadcast(other, late, late, 16, DSC_DTYPE_F32, 0, NULL, NULL));
  CHECK_OK(self, dsc_comm_set_timeout(self->world, SHORT_TIMEOUT_MS));
  PASS_ON(ranks_meet(self));
  PASS_ON(make(self, &settings, 1, &model));
  PASS_ON(iterate(self, &settings, &model, 0));
  PASS_ON(ranks_meet(self));
  if (self->rank == 1)
    CHECK_OK(self, dsc_broadcast(other, late, late, 16, DSC_DTYPE_F32, 0, model.stream, NULL));
  const dsc_result_t failed = dsc_bucket_reducer_clip(model.reducer, NULL, &norm);
  if (failed != DSC_ERR_TIMEOUT || !strstr(dsc_last_error_message(), "rank 1"))
    FAIL(self, "%d: %s", failed, dsc_last_error_message());
  const dsc_result_t next = dsc_bucket_reducer_begin(model.reducer, model.stream);
  CHECK(self, next == DSC_ERR_TIMEOUT || next == DSC_ERR_REVOKED);
  if (self->rank == 0)
    CHECK_OK(self, dsc_broadcast(other, late, late, 16, DSC_DTYPE_F32, 0, model.stream, NULL));
  CHECK(self, gpu_synchronize(model.stream));
  PASS_ON(drop(self, &model));
  CHECK_OK(self, dsc_comm_destroy(other));
  gpu_free(late);
  return 0;
}

static void clipping_behind_a_device_that_does_not_get_there(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, clip_stuck_body, NULL), 0);
}

/* ---- buckets of another type than the gradients ---- */

/* Accumulates two gradients before the one that is marked. */
static int collect(rank_t* self, const settings_t* settings, const model_t* model, int step) {
  char values[MOST * 8];
  for (int round = 0; round < 2; ++round)
    for (int p = 0; p < PARAMS; ++p) {
      const size_t bytes = count_of(p) * bytes_of(settings->dtype);
      fill(values, settings->dtype, self->rank + 3 * round, step, p);
      PASS_ON(put(self, model, model->grads[p], values, bytes));
      CHECK_OK(self,
               dsc_bucket_reducer_accumulate(model->reducer, (size_t)p, model->grads[p], model->stream));
      if (model->memory == 1) CHECK(self, gpu_synchronize(model->stream));
    }
  return 0;
}

/* Step 2 is not reduced. */
static int collect_and_mark(rank_t* self, const settings_t* settings, const model_t* model, int step) {
  CHECK_OK(self, dsc_bucket_reducer_set_sync(model->reducer, step != 2));
  CHECK_OK(self, dsc_bucket_reducer_begin(model->reducer, model->stream));
  if (step >= 1) PASS_ON(collect(self, settings, model, step));
  PASS_ON(mark(self, settings, model, step));
  CHECK_OK(self, dsc_bucket_reducer_finish(model->reducer, model->stream));
  CHECK_OK(self, dsc_bucket_reducer_synchronize(model->reducer, -1));
  return 0;
}

static int types_body(rank_t* self) {
  static const settings_t all[] = {{DSC_DTYPE_BF16, DSC_DTYPE_F32, DSC_AVERAGE_NONE, NULL},
                                   {DSC_DTYPE_F16, DSC_DTYPE_F32, DSC_AVERAGE_PYTORCH, NULL},
                                   {DSC_DTYPE_F8E4M3, DSC_DTYPE_F32, DSC_AVERAGE_NONE, NULL},
                                   {DSC_DTYPE_F8E5M2, DSC_DTYPE_F32, DSC_AVERAGE_NONE, "topk(ratio=0.1)"},
                                   {DSC_DTYPE_BF16, DSC_DTYPE_F32, DSC_AVERAGE_PRE, "fp16"},
                                   {DSC_DTYPE_F32, DSC_DTYPE_BF16, DSC_AVERAGE_PYTORCH, NULL},
                                   {DSC_DTYPE_F32, DSC_DTYPE_F16, DSC_AVERAGE_NONE, NULL},
                                   {DSC_DTYPE_F32, DSC_DTYPE_F8E5M2, DSC_AVERAGE_NONE, NULL}};
  for (size_t k = 0; k < sizeof all / sizeof *all; ++k) {
    model_t models[MEMORIES];
    for (int m = 0; m < MEMORIES; ++m) PASS_ON(make(self, &all[k], m, &models[m]));
    for (int step = 0; step < STEPS; ++step) {
      for (int m = 0; m < MEMORIES; ++m) PASS_ON(collect_and_mark(self, &all[k], &models[m], step));
      PASS_ON(compare(self, &all[k], models, step));
    }
    if (all[k].hook == NULL) PASS_ON(clip_both(self, &all[k], models, DSC_NORM_MAX));
    for (int m = 0; m < MEMORIES; ++m) PASS_ON(drop(self, &models[m]));
  }
  return 0;
}

/* Puts a number that is too large for the type of the buckets, or a NaN, into rank 0's element 7 of c. */
static int bad_element(rank_t* self, const settings_t* settings, const model_t* model) {
  const float large = 1e6F;
  const uint16_t nan = 0x7fc0;
  const size_t bytes = bytes_of(settings->dtype);
  char values[MOST * sizeof(float)] = {0};
  memcpy(values + 7 * bytes, settings->dtype == DSC_DTYPE_F32 ? (const void*)&large : &nan, bytes);
  if (self->rank != 0) memset(values, 0, sizeof values);
  PASS_ON(put(self, model, model->grads[2], values, count_of(2) * bytes));
  CHECK_OK(self, dsc_bucket_reducer_begin(model->reducer, model->stream));
  for (size_t p = 0; p < PARAMS; ++p)
    if (p != 2) CHECK_OK(self, dsc_bucket_reducer_mark_unused(model->reducer, p));
  CHECK_OK(self, dsc_bucket_reducer_mark_ready(model->reducer, 2, model->grads[2], model->stream));
  CHECK_RESULT(self, DSC_ERR_NONFINITE, dsc_bucket_reducer_finish(model->reducer, model->stream));
  if (!strstr(dsc_last_error_message(), "c (index 2) on rank 0 is a NaN or infinite at element 7"))
    FAIL(self, "memory %d: %s", model->memory, dsc_last_error_message());
  return 0;
}

static int bad_elements_body(rank_t* self) {
  static const settings_t all[] = {{DSC_DTYPE_F32, DSC_DTYPE_F16, DSC_AVERAGE_NONE, NULL},
                                   {DSC_DTYPE_BF16, DSC_DTYPE_F32, DSC_AVERAGE_NONE, NULL}};
  const dsc_result_t set = dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_FAIL);
  if (set == DSC_ERR_UNSUPPORTED && strstr(dsc_last_error_message(), "between hosts")) return 0;
  CHECK_RESULT(self, DSC_OK, set);
  for (size_t k = 0; k < sizeof all / sizeof *all; ++k)
    for (int m = 0; m < MEMORIES; ++m) {
      model_t model;
      PASS_ON(make(self, &all[k], m, &model));
      PASS_ON(bad_element(self, &all[k], &model));
      PASS_ON(drop(self, &model));
    }
  return 0;
}

static void buckets_of_another_type(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) {
    assert_int_equal(run_ranks(size, types_body, NULL), 0);
    assert_int_equal(run_ranks(size, bad_elements_body, NULL), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(buckets_of_another_type),
      cmocka_unit_test(clipping_gives_the_bits_of_the_host),
      cmocka_unit_test(clipping_is_ordered_on_the_stream_of_finish),
      cmocka_unit_test(clipping_is_not_captured),
      cmocka_unit_test(clipping_behind_a_device_that_does_not_get_there),
  };
  return cmocka_run_group_tests_name("gpu_gradients", tests, NULL, NULL);
}
