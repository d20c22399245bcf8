/* Sharded parameters on devices give the same bits as sharded parameters in host memory. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_c.h"
#include "gpu.h"
#include "ranks.h"

enum { PARAMS = 8, UNITS = 4, STREAMS = 3, MOST = 5000, KINDS = 5, STEPS = 5 };

static const size_t counts[PARAMS] = {3, 1000, 1, 17, 0, 64, 5000, 4097};
static const char* const names[PARAMS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
static const size_t unit_starts[UNITS] = {0, 2, 5, 7};

typedef struct rules {
  int32_t stage;
  dsc_dtype_t param_dtype; /* gradients are f32 */
  dsc_average_t average;
  int32_t shard_size;
  size_t max_live_bytes;
} rules_t;

/* One set of sharded parameters. Either everything is on the device, or nothing. */
typedef struct model {
  rules_t rules;
  bool on_device;
  dsc_sharded_t* sharded;
  void* params[PARAMS];
  void* grads[PARAMS];
  void* streams[STREAMS];
  size_t units[PARAMS];
  size_t shards;
  dsc_sharded_shard_t shard[PARAMS];
} model_t;

static size_t bytes_of(dsc_dtype_t dtype) { return dtype == DSC_DTYPE_BF16 ? 2 : 4; }

/* Returns small multiples of 1/2, whose squares have exact sums. */
static float element(int rank, int step, int param, size_t i) {
  return (float)((rank + 1) * 4 + (step * 3 + param * 7 + (int)(i % 13)) % 11) / 2 - 4;
}

static void write_elements(void* to, dsc_dtype_t dtype, int rank, int step, int param) {
  for (size_t i = 0; i < counts[param]; ++i) {
    const float value = element(rank, step, param, i);
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t half = (uint16_t)(bits >> 16);
    if (dtype == DSC_DTYPE_BF16)
      ((uint16_t*)to)[i] = half;
    else
      ((float*)to)[i] = value;
  }
}

static int to_model(rank_t* self, const model_t* model, void* to, const void* from, size_t bytes) {
  if (model->on_device)
    CHECK(self, gpu_upload(to, from, bytes));
  else
    memcpy(to, from, bytes);
  return 0;
}

static int from_model(rank_t* self, const model_t* model, void* to, const void* from, size_t bytes) {
  if (model->on_device)
    CHECK(self, gpu_download(to, from, bytes));
  else
    memcpy(to, from, bytes);
  return 0;
}

static int fill(rank_t* self, const model_t* model, void* to, dsc_dtype_t dtype, int step, int param) {
  float values[MOST];
  write_elements(values, dtype, self->rank, step, param);
  return to_model(self, model, to, values, counts[param] * bytes_of(dtype));
}

static void* memory_for(const model_t* model, size_t bytes) {
  if (model->on_device) return gpu_alloc(bytes + 8);
  return calloc(1, bytes + 8);
}

static int make(rank_t* self, model_t* model, const rules_t* rules, bool on_device) {
  memset(model, 0, sizeof *model);
  model->rules = *rules;
  model->on_device = on_device;
  dsc_tensor_t tensors[PARAMS];
  for (int p = 0; p < PARAMS; ++p) {
    model->params[p] = memory_for(model, counts[p] * sizeof(float));
    model->grads[p] = memory_for(model, counts[p] * sizeof(float));
    CHECK(self, model->params[p] != NULL && model->grads[p] != NULL);
    PASS_ON(fill(self, model, model->params[p], rules->param_dtype, 99, p));
    tensors[p] = (dsc_tensor_t){.struct_size = sizeof *tensors,
                                .data = model->params[p],
                                .name = names[p],
                                .count = counts[p],
                                .dtype = rules->param_dtype,
                                .device = on_device ? self->options.device : -1};
  }
  for (int s = 0; s < STREAMS && on_device; ++s) CHECK(self, (model->streams[s] = gpu_stream()) != NULL);
  dsc_shard_plan_options_t plan;
  dsc_sharded_options_t options;
  CHECK_OK(self, dsc_shard_plan_options_init(&plan, sizeof plan));
  plan.unit_starts = unit_starts;
  plan.n_units = UNITS;
  CHECK_OK(self, dsc_sharded_options_init(&options, sizeof options));
  options.plan = &plan;
  options.stage = rules->stage;
  options.average = rules->average;
  options.grad_dtype = DSC_DTYPE_F32;
  options.shard_size = rules->shard_size;
  options.max_live_bytes = rules->max_live_bytes;
  CHECK_OK(self, dsc_sharded_create(self->world, tensors, PARAMS, &options, &model->sharded));
  size_t buckets[PARAMS], starts[PARAMS], n_units = 0, shard = 0, shards = 0;
  CHECK_OK(self,
           dsc_sharded_locations(model->sharded, model->units, buckets, starts, &n_units, &shard, &shards));
  model->shard[0].struct_size = sizeof *model->shard;
  CHECK_OK(self, dsc_sharded_shards(model->sharded, model->shard, PARAMS, &model->shards));
  return 0;
}

static int drop(rank_t* self, model_t* model) {
  CHECK_OK(self, dsc_sharded_destroy(model->sharded));
  for (int p = 0; p < PARAMS; ++p) {
    if (model->on_device) {
      gpu_free(model->params[p]);
      gpu_free(model->grads[p]);
    } else {
      free(model->params[p]);
      free(model->grads[p]);
    }
  }
  for (int s = 0; s < STREAMS && model->on_device; ++s) gpu_stream_free(model->streams[s]);
  return 0;
}

typedef enum { COPIED, IN_PLACE, COLLECTED, ONLY_COLLECTED, UNUSED } kind_t;

static char rubbish[MOST * sizeof(float)];

/* Overwrites a gradient's memory in stream order as soon as the call has returned. */
static int overwrite(rank_t* self, const model_t* model, int p, void* stream) {
  const size_t bytes = counts[p] * sizeof(float);
  if (!model->on_device)
    memcpy(model->grads[p], rubbish, bytes);
  else if (bytes > 0)
    CHECK(self, gpu_copy(model->grads[p], rubbish, bytes, stream));
  return 0;
}

/* Writes the gradient before any stream continues. */
static int fill_gradient(rank_t* self, const model_t* model, dsc_dtype_t dtype, int step, int p) {
  for (int s = 0; s < STREAMS && model->on_device; ++s) CHECK(self, gpu_synchronize(model->streams[s]));
  return fill(self, model, model->grads[p], dtype, step, p);
}

static int add_gradient(rank_t* self, model_t* model, int p, int step, void* stream) {
  const dsc_dtype_t dtype = step % 2 == 0 ? DSC_DTYPE_F32 : model->rules.param_dtype;
  PASS_ON(fill_gradient(self, model, dtype, step, p));
  CHECK_OK(self, dsc_sharded_accumulate(model->sharded, (size_t)p, model->grads[p], dtype, stream));
  return overwrite(self, model, p, stream);
}

static int give(rank_t* self, model_t* model, int p, int step) {
  dsc_sharded_t* const sharded = model->sharded;
  void* const stream = model->streams[(p + step) % STREAMS];
  void* const other = model->streams[(p + step + 1) % STREAMS];
  kind_t kind = (kind_t)((p + step) % KINDS);
  if (kind == IN_PLACE && model->rules.stage > 1) kind = COPIED;
  if (kind == UNUSED) {
    CHECK_OK(self, dsc_sharded_mark_unused(sharded, (size_t)p));
    return 0;
  }
  if (kind == IN_PLACE) {
    void* view = NULL;
    CHECK_OK(self, dsc_sharded_grad_view(sharded, (size_t)p, &view));
    PASS_ON(fill(self, model, view, DSC_DTYPE_F32, step, p));
    CHECK_OK(self, dsc_sharded_mark_ready(sharded, (size_t)p, step % 2 == 0 ? NULL : view, 0, stream));
    return 0;
  }
  if (kind == COLLECTED || kind == ONLY_COLLECTED) PASS_ON(add_gradient(self, model, p, step + 1, other));
  if (kind == ONLY_COLLECTED) {
    PASS_ON(add_gradient(self, model, p, step, stream));
    CHECK_OK(self, dsc_sharded_mark_ready(sharded, (size_t)p, NULL, 0, stream));
    return 0;
  }
  const dsc_dtype_t dtype = step % 2 == 0 ? model->rules.param_dtype : DSC_DTYPE_F32;
  PASS_ON(fill_gradient(self, model, dtype, step, p));
  CHECK_OK(self, dsc_sharded_mark_ready(sharded, (size_t)p, model->grads[p], dtype, stream));
  return overwrite(self, model, p, stream);
}

/* Checks that the bytes of both models are equal. */
static int expect_same(rank_t* self, const model_t* model, const void* memory, const void* expected,
                       size_t bytes, const char* what, int step) {
  static _Thread_local char came[4 * MOST * sizeof(float)];
  CHECK(self, bytes <= sizeof came);
  PASS_ON(from_model(self, model, came, memory, bytes));
  for (size_t i = 0; i < bytes; ++i)
    if (came[i] != ((const char*)expected)[i])
      FAIL(self, "stage %d, step %d: byte %zu of %s differs", model->rules.stage, step, i, what);
  return 0;
}

/* Stands for an optimizer: changes the parameters. */
static void optimize(void* params, const float* grads, size_t count, dsc_dtype_t dtype) {
  for (size_t i = 0; i < count; ++i) {
    if (dtype == DSC_DTYPE_BF16) {
      uint16_t* const to = (uint16_t*)params + i;
      to[0] = (uint16_t)(to[0] + (uint16_t)grads[i]);
    } else {
      ((float*)params)[i] -= grads[i] / 8;
    }
  }
}

/* Checks that the gradients of both models are equal. Then the optimizer writes the same parameters to both.
 */
static int compare_shards(rank_t* self, model_t* host, model_t* device, int step) {
  CHECK(self, host->shards == device->shards);
  for (size_t b = 0; b < host->shards; ++b) {
    const dsc_sharded_shard_t *here = &host->shard[b], *there = &device->shard[b];
    CHECK(self, here->count == there->count && here->start == there->start);
    CHECK(self, here->grad_dtype == DSC_DTYPE_F32 && there->grad_dtype == DSC_DTYPE_F32);
    const size_t bytes = here->count * bytes_of(here->dtype);
    PASS_ON(expect_same(self, device, there->params, here->params, bytes, "a parameter shard", step));
    PASS_ON(expect_same(self, device, there->grads, here->grads, here->count * sizeof(float),
                        "a gradient shard", step));
    optimize(here->params, here->grads, here->count, here->dtype);
    PASS_ON(to_model(self, device, there->params, here->params, bytes));
  }
  return 0;
}

static int compare_params(rank_t* self, model_t* host, model_t* device, int step) {
  void* const stream = device->streams[(step + 1) % STREAMS];
  for (size_t unit = 0; unit < UNITS; ++unit) {
    CHECK_OK(self, dsc_sharded_unshard(host->sharded, unit));
    CHECK_OK(self, dsc_sharded_unshard(device->sharded, unit));
    CHECK_OK(self, dsc_sharded_wait(host->sharded, unit, NULL));
    CHECK_OK(self, dsc_sharded_wait(device->sharded, unit, stream));
    CHECK(self, gpu_synchronize(stream));
    for (size_t p = 0; p < PARAMS; ++p) {
      void *here = NULL, *there = NULL;
      if (host->units[p] != unit) continue;
      CHECK_OK(self, dsc_sharded_param_view(host->sharded, p, &here));
      CHECK_OK(self, dsc_sharded_param_view(device->sharded, p, &there));
      const size_t bytes = counts[p] * bytes_of(host->rules.param_dtype);
      PASS_ON(expect_same(self, device, there, here, bytes, names[p], step));
    }
    CHECK_OK(self, dsc_sharded_reshard(host->sharded, unit, NULL));
    CHECK_OK(self, dsc_sharded_reshard(device->sharded, unit, stream));
  }
  return 0;
}

static dsc_result_t clip_to(const model_t* model, double most, double* norm, void* stream) {
  dsc_clip_options_t options;
  dsc_result_t result = dsc_clip_options_init(&options, sizeof options);
  options.max_norm = most;
  return result == DSC_OK ? dsc_sharded_clip(model->sharded, &options, norm, stream) : result;
}

/* The norms are added in different orders. Gradients and their sums over two ranks are exact, so the norms
 * are equal. */
static int clip_both(rank_t* self, model_t* host, model_t* device, int step, void* stream) {
  const double most = self->size == 3 ? INFINITY : 20;
  double here = 0, there = 0;
  CHECK_OK(self, clip_to(host, most, &here, NULL));
  CHECK_OK(self, clip_to(device, most, &there, stream));
  if (!(here > 20) || !(fabs(here - there) <= 1e-12 * here))
    FAIL(self, "step %d: the norm is %.17g, expected %.17g", step, there, here);
  return 0;
}

static int train_step(rank_t* self, model_t* host, model_t* device, int step) {
  void* const stream = device->streams[step % STREAMS];
  const int32_t adds = step % 3 == 1;
  CHECK_OK(self, dsc_sharded_begin(host->sharded, adds, NULL));
  CHECK_OK(self, dsc_sharded_begin(device->sharded, adds, stream));
  CHECK(self, gpu_synchronize(stream)); /* gradients are made in their views on another stream */
  for (int k = 0; k < PARAMS; ++k) {
    const int p = (k * 5 + self->rank + step) % PARAMS;
    PASS_ON(give(self, host, p, step));
    PASS_ON(give(self, device, p, step));
  }
  CHECK_OK(self, dsc_sharded_finish(host->sharded, NULL));
  CHECK_OK(self, dsc_sharded_finish(device->sharded, stream));
  if (step % 3 == 0) return 0; /* the next iteration adds to this one */
  PASS_ON(clip_both(self, host, device, step, stream));
  CHECK(self, gpu_synchronize(stream));
  PASS_ON(compare_shards(self, host, device, step));
  CHECK_OK(self, dsc_sharded_step_done(host->sharded, 1, NULL));
  CHECK_OK(self, dsc_sharded_step_done(device->sharded, 1, stream));
  return compare_params(self, host, device, step);
}

/* Marks are in any order, so units may exceed the memory limit, but on a device not more than on the host.
 */
static int check_memory(rank_t* self, const model_t* host, const model_t* device) {
  dsc_sharded_memory_info_t here = {.struct_size = sizeof here}, there = {.struct_size = sizeof there};
  CHECK_OK(self, dsc_sharded_memory_info(host->sharded, &here));
  CHECK_OK(self, dsc_sharded_memory_info(device->sharded, &there));
  const size_t most = device->rules.max_live_bytes;
  CHECK(self, there.grad_bytes > 0 && there.grad_shard_bytes == here.grad_shard_bytes);
  const size_t padding = UNITS * 256;
  CHECK(self, there.peak_grad_bytes <= here.peak_grad_bytes + padding);
  CHECK(self, there.peak_param_bytes <= here.peak_param_bytes + padding);
  CHECK(self, most == 0 || device->rules.stage < 3 || there.peak_param_bytes <= most);
  return 0;
}

static int train_body(rank_t* self) {
  const rules_t* const rules = self->arg;
  model_t host, device;
  PASS_ON(make(self, &host, rules, false));
  PASS_ON(make(self, &device, rules, true));
  PASS_ON(compare_params(self, &host, &device, -1));
  for (int step = 0; step < STEPS; ++step) PASS_ON(train_step(self, &host, &device, step));
  PASS_ON(check_memory(self, &host, &device));
  PASS_ON(drop(self, &device));
  return drop(self, &host);
}

static int train(int32_t size, const rules_t* rules) { return run_ranks(size, train_body, rules); }

static void has_the_bits_of_host_memory(void** state) {
  (void)state;
  for (int32_t stage = 1; stage <= 3; ++stage)
    for (int bf16 = 0; bf16 < 2; ++bf16)
      for (int32_t size = 1; size <= 3; ++size) {
        const rules_t rules = {.stage = stage,
                               .param_dtype = bf16 ? DSC_DTYPE_BF16 : DSC_DTYPE_F32,
                               .average = size == 1 ? DSC_AVERAGE_NONE : DSC_AVERAGE_PRE + bf16};
        assert_int_equal(train(size, &rules), 0);
      }
}

static void sums_copies_as_host_memory_does(void** state) {
  (void)state;
  for (int32_t shard_size = 1; shard_size <= 2; ++shard_size)
    for (int32_t stage = 1; stage <= 3; ++stage) {
      const rules_t rules = {.stage = stage,
                             .param_dtype = DSC_DTYPE_F32,
                             .average = stage == 2 ? DSC_AVERAGE_POST : DSC_AVERAGE_PRE,
                             .shard_size = shard_size};
      assert_int_equal(train(shard_size * 2, &rules), 0);
    }
}

/* The memory is only large enough for the largest unit. Marks and gathers reuse it in stream order. */
static void takes_no_more_memory_than_allowed(void** state) {
  (void)state;
  for (int32_t stage = 2; stage <= 3; ++stage) {
    const rules_t rules = {.stage = stage,
                           .param_dtype = DSC_DTYPE_F32,
                           .average = DSC_AVERAGE_PRE,
                           .max_live_bytes = 21 * 1024};
    assert_int_equal(train(2, &rules), 0);
  }
}

static int expect_text(rank_t* self, const char* text) {
  if (strstr(dsc_last_error_message(), text) == NULL)
    FAIL(self, "expected \"%s\", came \"%s\"", text, dsc_last_error_message());
  return 0;
}

static dsc_result_t create(rank_t* self, const dsc_tensor_t* tensors, size_t n, dsc_sharded_t** sharded) {
  dsc_sharded_options_t options;
  CHECK_OK(self, dsc_sharded_options_init(&options, sizeof options));
  options.sync = 0;
  return dsc_sharded_create(self->world, tensors, n, &options, sharded);
}

/* Refused are parameters on the host together with parameters on the device, and memory that is not on the
 * given device. */
static int refused_parameters_body(rank_t* self) {
  float here[8] = {0};
  void* const there = gpu_alloc(sizeof here);
  dsc_sharded_t* sharded = NULL;
  const int32_t device = self->options.device;
  dsc_tensor_t tensors[2] = {{sizeof *tensors, there, NULL, "v", 8, DSC_DTYPE_F32, 0, device, 0},
                             {sizeof *tensors, here, NULL, "w", 8, DSC_DTYPE_F32, 0, -1, 0}};
  CHECK(self, create(self, tensors, 2, &sharded) != DSC_OK);
  PASS_ON(expect_text(self, "w (index 1): device is -1, expected "));
  tensors[0].device = device + 1;
  CHECK(self, create(self, tensors, 1, &sharded) != DSC_OK);
  PASS_ON(expect_text(self, "v (index 0): device is "));
  tensors[1].device = device;
  dsc_sharded_options_t options;
  CHECK_OK(self, dsc_sharded_options_init(&options, sizeof options));
  const dsc_result_t told = dsc_sharded_create(self->world, tensors + 1, 1, &options, &sharded);
  CHECK(self, told == DSC_ERR_INVALID_ARG || told == DSC_ERR_CONFIG); /* only rank 0's data is used */
  PASS_ON(expect_text(self, "data is host memory"));
  CHECK(self, sharded == NULL);
  gpu_free(there);
  return 0;
}

/* Only the rank with the wrong arguments gets the error, before anything happens. */
static int refused_gradients_body(rank_t* self) {
  float here[8] = {0};
  const rules_t rules = {.stage = 2, .param_dtype = DSC_DTYPE_F32, .average = DSC_AVERAGE_NONE};
  model_t model;
  void* view = NULL;
  PASS_ON(make(self, &model, &rules, true));
  CHECK_OK(self, dsc_sharded_begin(model.sharded, 0, NULL));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_sharded_mark_ready(model.sharded, 0, here, 0, NULL));
  PASS_ON(expect_text(self, "a (index 0): gradient is in host memory, expected memory of device "));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_sharded_accumulate(model.sharded, 0, here, 0, NULL));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED, dsc_sharded_grad_view(model.sharded, 0, &view));
  void* const stream = model.streams[0];
  CHECK(self, gpu_begin_capture(stream));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED,
               dsc_sharded_mark_ready(model.sharded, 0, model.grads[0], 0, stream));
  PASS_ON(expect_text(self, "captured"));
  gpu_graph_free(gpu_end_capture(stream));
  for (size_t p = 0; p < PARAMS; ++p) CHECK_OK(self, dsc_sharded_mark_unused(model.sharded, p));
  CHECK_OK(self, dsc_sharded_finish(model.sharded, NULL));
  CHECK_OK(self, dsc_sharded_step_done(model.sharded, 0, NULL));
  CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_FAIL));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED, dsc_sharded_begin(model.sharded, 0, NULL));
  PASS_ON(expect_text(self, "cannot be checked for NaNs"));
  CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_OFF));
  PASS_ON(drop(self, &model));
  PASS_ON(make(self, &model, &rules, false));
  CHECK_OK(self, dsc_sharded_begin(model.sharded, 0, NULL));
  void* const there = gpu_alloc(64);
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_sharded_mark_ready(model.sharded, 0, there, 0, NULL));
  PASS_ON(expect_text(self, "a (index 0): gradient is in memory of device "));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED, dsc_sharded_mark_ready(model.sharded, 0, here, 0, there));
  gpu_free(there);
  return drop(self, &model);
}

static void memory_that_does_not_fit(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) {
    assert_int_equal(run_ranks(size, refused_parameters_body, NULL), 0);
    assert_int_equal(run_ranks(size, refused_gradients_body, NULL), 0);
  }
}

/* Rank 1 has no gradient for e, the other rank has one. The rank that was first gets the error in finish, or
 * in the call after. */
static int missing_body(rank_t* self) {
  const rules_t rules = {.stage = 2, .param_dtype = DSC_DTYPE_F32, .average = DSC_AVERAGE_PRE};
  model_t model;
  PASS_ON(make(self, &model, &rules, true));
  CHECK_OK(self, dsc_sharded_begin(model.sharded, 0, NULL));
  dsc_result_t code = DSC_OK;
  for (size_t p = PARAMS; p-- > 0 && code == DSC_OK;)
    if (p != 4 || self->rank != 1) code = dsc_sharded_mark_ready(model.sharded, p, model.grads[p], 0, NULL);
  if (code == DSC_OK) code = dsc_sharded_finish(model.sharded, NULL);
  if (self->rank == 1) {
    CHECK_RESULT(self, DSC_ERR_STATE, code);
    PASS_ON(expect_text(self, "did not receive a gradient on rank 1: e"));
  } else {
    double norm = 0;
    if (code == DSC_OK) code = clip_to(&model, 1, &norm, NULL);
    CHECK_RESULT(self, DSC_ERR_MISMATCH, code);
    PASS_ON(expect_text(self, "rank 1"));
  }
  return drop(self, &model);
}

static void a_gradient_is_missing(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, missing_body, NULL), 0);
}

/* Rank 1 dies between steps. The other rank gets the error in the call that notices it. */
static int killed_body(rank_t* self) {
  const rules_t* const rules = self->arg;
  model_t model;
  PASS_ON(make(self, &model, rules, true));
  dsc_result_t failed = DSC_OK;
  const int64_t start = now_ms();
  for (int step = 0; failed == DSC_OK; ++step) {
    CHECK(self, now_ms() - start < RANKS_TIMEOUT_MS);
    if (self->rank == 1 && step == 3) kill(getpid(), SIGKILL);
    failed = dsc_sharded_begin(model.sharded, 0, NULL);
    for (size_t p = PARAMS; p-- > 0 && failed == DSC_OK;)
      failed = dsc_sharded_mark_ready(model.sharded, p, model.grads[p], 0, NULL);
    double norm = 0;
    if (failed == DSC_OK) failed = dsc_sharded_finish(model.sharded, NULL);
    if (failed == DSC_OK) failed = clip_to(&model, 1, &norm, NULL);
    if (failed == DSC_OK) failed = dsc_sharded_step_done(model.sharded, 1, NULL);
    for (size_t unit = 0; unit < UNITS && failed == DSC_OK; ++unit) {
      failed = dsc_sharded_unshard(model.sharded, unit);
      if (failed == DSC_OK) failed = dsc_sharded_wait(model.sharded, unit, NULL);
      if (failed == DSC_OK) failed = dsc_sharded_reshard(model.sharded, unit, NULL);
    }
  }
  CHECK_RESULT(self, DSC_ERR_PEER_DEAD, failed);
  PASS_ON(expect_text(self, "rank 1"));
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_sharded_begin(model.sharded, 0, NULL));
  CHECK(self, gpu_synchronize(NULL)); /* the stream that waited is idle again */
  return drop(self, &model);
}

static void survivors_name_a_killed_rank(void** state) {
  (void)state;
  if (!ranks_are_processes()) return; /* a thread cannot be killed separately */
  for (int32_t stage = 1; stage <= 3; ++stage) {
    const rules_t rules = {.stage = stage, .param_dtype = DSC_DTYPE_F32, .average = DSC_AVERAGE_PRE};
    assert_int_equal(run_ranks(2, killed_body, &rules), 1);
  }
}

int main(void) {
  memset(rubbish, 0x7f, sizeof rubbish);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(has_the_bits_of_host_memory),
      cmocka_unit_test(sums_copies_as_host_memory_does),
      cmocka_unit_test(takes_no_more_memory_than_allowed),
      cmocka_unit_test(memory_that_does_not_fit),
      cmocka_unit_test(a_gradient_is_missing),
      cmocka_unit_test(survivors_name_a_killed_rank),
  };
  return cmocka_run_group_tests_name("gpu_sharded", tests, NULL, NULL);
}
