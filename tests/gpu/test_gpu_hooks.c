/* Hooks, clipping and types of gradients on devices give the same bits as in host memory: every rank trains
 * two models with the same gradients, one in each memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "gpu.h"
#include "ranks.h"

enum { PARAMS = 6, MOST = 3000, STEPS = 5, MEMORIES = 2 };

static const int64_t shapes[PARAMS][2] = {{40, 33}, {7, 1}, {60, 50}, {1, 1}, {257, 1}, {16, 17}};
static const char* const names[PARAMS] = {"a", "b", "c", "d", "e", "f"};

static size_t count_of(int p) { return (size_t)(shapes[p][0] * shapes[p][1]); }

/* One of the two models: memory 0 is the host's, 1 the device's. */
typedef struct model {
  int memory;
  dsc_bucket_reducer_t* reducer;
  void* stream;
  char* grads[PARAMS];
} model_t;

typedef struct settings {
  int32_t dtype;      /* of gradients */
  int32_t grad_dtype; /* of buckets; 0: the same */
  int32_t average;
  const char* hook; /* NULL: none */
} settings_t;

static size_t bytes_of(int32_t dtype) {
  return dtype == DSC_DTYPE_F64                              ? 8
         : dtype == DSC_DTYPE_F32                            ? 4
         : dtype == DSC_DTYPE_F16 || dtype == DSC_DTYPE_BF16 ? 2
                                                             : 1;
}

static int put(rank_t* self, const model_t* model, void* to, const void* from, size_t bytes) {
  if (model->memory == 0)
    memcpy(to, from, bytes);
  else
    CHECK(self, gpu_upload(to, from, bytes));
  return 0;
}

static int get(rank_t* self, const model_t* model, void* to, const void* from, size_t bytes) {
  if (model->memory == 0)
    memcpy(to, from, bytes);
  else
    CHECK(self, gpu_download(to, from, bytes));
  return 0;
}

static int make(rank_t* self, const settings_t* settings, int memory, model_t* model) {
  dsc_tensor_t tensors[PARAMS];
  memset(model, 0, sizeof *model);
  model->memory = memory;
  for (int p = 0; p < PARAMS; ++p) {
    const size_t bytes = count_of(p) * bytes_of(settings->dtype);
    model->grads[p] = memory == 0 ? calloc(1, bytes) : gpu_alloc(bytes);
    CHECK(self, model->grads[p] != NULL);
    tensors[p] = (dsc_tensor_t){.struct_size = sizeof *tensors,
                                .shape = shapes[p],
                                .name = names[p],
                                .count = count_of(p),
                                .dtype = settings->dtype,
                                .ndim = shapes[p][1] == 1 ? 1 : 2,
                                .device = memory == 0 ? -1 : self->options.device};
  }
  if (memory == 1) CHECK(self, (model->stream = gpu_stream()) != NULL);
  dsc_bucket_reducer_options_t options;
  CHECK_OK(self, dsc_bucket_reducer_options_init(&options, sizeof options));
  options.bucket_bytes = 8192;
  options.first_bucket_bytes = 1024;
  options.average = settings->average;
  options.grad_dtype = settings->grad_dtype;
  options.sync = 0;
  options.rebuild = DSC_REBUILD_NEVER;
  CHECK_OK(self, dsc_bucket_reducer_create(self->world, tensors, PARAMS, &options, &model->reducer));
  if (settings->hook != NULL) CHECK_OK(self, dsc_bucket_reducer_use_hook(model->reducer, settings->hook));
  return 0;
}

static int drop(rank_t* self, model_t* model) {
  CHECK_OK(self, dsc_bucket_reducer_destroy(model->reducer));
  for (int p = 0; p < PARAMS; ++p) {
    if (model->memory == 0)
      free(model->grads[p]);
    else
      gpu_free(model->grads[p]);
  }
  if (model->memory == 1) gpu_stream_free(model->stream);
  return 0;
}

/* Bits of finite numbers that are neither too large nor too small for a sum of some of them. */
static void fill(void* memory, int32_t dtype, int rank, int step, int p) {
  uint64_t state = (uint64_t)(rank * 1000 + step * 10 + p);
  for (size_t i = 0; i < count_of(p); ++i) {
    const uint64_t bits = next_random(&state);
    const float value = (float)((int64_t)(bits % 20001) - 10000) / 4096.0F;
    const float f32 = value * (i % 7 == 0 ? 3.0F : 0.3F);
    uint32_t wide = 0;
    memcpy(&wide, &f32, sizeof wide);
    const uint16_t upper = (uint16_t)(wide >> 16);              /* a bf16 */
    const uint16_t half = (uint16_t)((bits & 0x83ff) | 0x3400); /* an f16 from 0.25 to 0.5 */
    const uint8_t byte = (uint8_t)((bits & 0x83) | 0x30);       /* small in both types */
    if (dtype == DSC_DTYPE_F32) ((float*)memory)[i] = f32;
    if (dtype == DSC_DTYPE_F64) ((double*)memory)[i] = (double)value / 3;
    if (dtype == DSC_DTYPE_BF16) ((uint16_t*)memory)[i] = upper;
    if (dtype == DSC_DTYPE_F16) ((uint16_t*)memory)[i] = half;
    if (bytes_of(dtype) == 1) ((uint8_t*)memory)[i] = byte;
  }
}

/* Of the odd parameters the gradient is made in its view, where that has the gradient's type. */
static int mark(rank_t* self, const settings_t* settings, const model_t* model, int step) {
  char values[MOST * 8];
  for (int p = PARAMS; p-- > 0;) {
    const size_t bytes = count_of(p) * bytes_of(settings->dtype);
    fill(values, settings->dtype, self->rank, step, p);
    const bool same = settings->grad_dtype == 0 || settings->grad_dtype == settings->dtype;
    void* view = NULL;
    CHECK_OK(self, dsc_bucket_reducer_grad_view(model->reducer, (size_t)p, &view));
    void* const to = p % 2 == 1 && same ? view : model->grads[p];
    PASS_ON(put(self, model, to, values, bytes));
    CHECK_OK(self, dsc_bucket_reducer_mark_ready(model->reducer, (size_t)p, to, model->stream));
  }
  return 0;
}

static int begin_to_finish(rank_t* self, const settings_t* settings, const model_t* model, int step) {
  CHECK_OK(self, dsc_bucket_reducer_begin(model->reducer, model->stream));
  PASS_ON(mark(self, settings, model, step));
  CHECK_OK(self, dsc_bucket_reducer_finish(model->reducer, model->stream));
  return 0;
}

static int iterate(rank_t* self, const settings_t* settings, const model_t* model, int step) {
  PASS_ON(begin_to_finish(self, settings, model, step));
  CHECK_OK(self, dsc_bucket_reducer_synchronize(model->reducer, -1));
  return 0;
}

/* Both models have the same bits, in views or in gradients. */
static int compare_places(rank_t* self, const settings_t* settings, const model_t models[MEMORIES], int step,
                          bool of_view) {
  char came[MEMORIES][MOST * 8];
  const bool wide = of_view && settings->grad_dtype != 0;
  const size_t element = bytes_of(wide ? settings->grad_dtype : settings->dtype);
  for (int p = 0; p < PARAMS; ++p) {
    for (int m = 0; m < MEMORIES; ++m) {
      void* from = models[m].grads[p];
      if (of_view) CHECK_OK(self, dsc_bucket_reducer_grad_view(models[m].reducer, (size_t)p, &from));
      PASS_ON(get(self, &models[m], came[m], from, count_of(p) * element));
    }
    for (size_t i = 0; i < count_of(p); ++i)
      if (memcmp(came[0] + i * element, came[1] + i * element, element) != 0)
        FAIL(self, "hook %s, types %d and %d, average %d, step %d, %s %s[%zu] differs",
             settings->hook ? settings->hook : "none", settings->dtype, settings->grad_dtype,
             settings->average, step, of_view ? "view" : "gradient", names[p], i);
  }
  return 0;
}

static int compare_views(rank_t* self, const settings_t* settings, const model_t models[MEMORIES], int step) {
  return compare_places(self, settings, models, step, true);
}

static int compare(rank_t* self, const settings_t* settings, const model_t models[MEMORIES], int step) {
  PASS_ON(compare_places(self, settings, models, step, false));
  return compare_views(self, settings, models, step);
}

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

/* Sums that are exact, so that it makes no difference whether gradients are divided or multiplied. */
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

/* What a hook remembers on a device goes on in host memory, and the other way round. */
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

/* A hook of the test's own, which gives a work; the library comes behind it though nobody waits for it. */
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

/* Nothing has happened when an iteration in a graph is refused. */
static int capture_body(rank_t* self) {
  const settings_t settings = {DSC_DTYPE_F32, 0, DSC_AVERAGE_PRE, "int8"};
  model_t model;
  PASS_ON(make(self, &settings, 1, &model));
  CHECK(self, gpu_begin_capture(model.stream));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_bucket_reducer_begin(model.reducer, model.stream));
  CHECK(self, strstr(dsc_last_error_message(),
                     "the stream is captured in a graph, expected one that is not: hook int8 computes on "
                     "the host") != NULL);
  gpu_graph_free(gpu_end_capture(model.stream));
  PASS_ON(iterate(self, &settings, &model, 0));
  return drop(self, &model);
}

/* The library's own types of 16 bits can be captured. */
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

/* Rank 1's gradients come behind a broadcast that rank 0 does not call in time. */
static int stuck_body(rank_t* self) {
  const settings_t settings = {DSC_DTYPE_F32, 0, DSC_AVERAGE_PRE, "topk"};
  dsc_comm_t* other = NULL;
  model_t model;
  float* const late = gpu_alloc(64);
  CHECK(self, late != NULL);
  CHECK_OK(self, dsc_comm_split(self->world, 0, self->rank, NULL, &other));
  CHECK_OK(self, dsc_broadcast(other, late, late, 16, DSC_DTYPE_F32, 0, NULL, NULL));
  CHECK_OK(self, dsc_comm_set_timeout(self->world, 1500));
  PASS_ON(make(self, &settings, 1, &model));
  CHECK_OK(self, dsc_bucket_reducer_begin(model.reducer, model.stream));
  for (int p = 0; p < PARAMS; ++p) {
    char values[MOST * sizeof(float)] = {0};
    PASS_ON(put(self, &model, model.grads[p], values, count_of(p) * sizeof(float)));
  }
  if (self->rank == 1)
    CHECK_OK(self, dsc_broadcast(other, late, late, 16, DSC_DTYPE_F32, 0, model.stream, NULL));
  dsc_result_t failed = DSC_OK;
  for (int p = PARAMS; p-- > 0 && failed == DSC_OK;)
    failed = dsc_bucket_reducer_mark_ready(model.reducer, (size_t)p, model.grads[p], model.stream);
  if (failed == DSC_OK) failed = dsc_bucket_reducer_finish(model.reducer, model.stream);
  if (failed != DSC_ERR_TIMEOUT || !strstr(dsc_last_error_message(), "rank 1"))
    FAIL(self, "%d: %s", failed, dsc_last_error_message());
  if (self->rank == 1)
    CHECK(self, strstr(dsc_last_error_message(), "the gradients of rank 1 were not there"));
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

/* ---- clipping: the norm of small types has exact squares, so that it is the host's to the last bit ---- */

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

/* A gradient that is not finite on the last rank: all have that norm, and nothing is changed. */
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

/* Clipping comes behind what stands on the stream after finish, and before what comes there later. */
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
  CHECK(self, strstr(dsc_last_error_message(), "the stream of finish is captured in a graph") != NULL);
  gpu_graph_free(gpu_end_capture(model.stream));
  PASS_ON(clip(self, &model, DSC_NORM_TWO, &norm));
  return drop(self, &model);
}

static void clipping_is_not_captured(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, clip_capture_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hooks_give_the_bits_of_the_host),
      cmocka_unit_test(the_plain_hook_takes_all_floats),
      cmocka_unit_test(states_of_hooks_fit_both_memories),
      cmocka_unit_test(the_result_comes_behind_a_work_of_a_hook),
      cmocka_unit_test(hooks_in_a_graph),
      cmocka_unit_test(a_device_that_does_not_get_there),
      cmocka_unit_test(clipping_gives_the_bits_of_the_host),
      cmocka_unit_test(clipping_is_ordered_on_the_stream_of_finish),
      cmocka_unit_test(clipping_is_not_captured),
  };
  return cmocka_run_group_tests_name("gpu_hooks", tests, NULL, NULL);
}
