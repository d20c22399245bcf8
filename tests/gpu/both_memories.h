/* One model in host memory and one on a device. Both get the same gradients and are compared bit by bit.
 */
#ifndef BOTH_MEMORIES_H
#define BOTH_MEMORIES_H

#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "ranks.h"

enum { PARAMS = 6, MOST = 3000, STEPS = 5, MEMORIES = 2 };

/* For ranks that meet before their next call, even on a busy machine. The time-out must also be long enough
 * for creating the reducer, whose communicator takes over the world's time-out. */
enum { SHORT_TIMEOUT_MS = 6000 };

static const int64_t shapes[PARAMS][2] = {{40, 33}, {7, 1}, {60, 50}, {1, 1}, {257, 1}, {16, 17}};
static const char* const names[PARAMS] = {"a", "b", "c", "d", "e", "f"};

static inline size_t count_of(int p) { return (size_t)(shapes[p][0] * shapes[p][1]); }

/* One of the two models: memory 0 is the host, 1 is the device. */
typedef struct model {
  int memory;
  dsc_bucket_reducer_t* reducer;
  void* stream;
  char* grads[PARAMS];
} model_t;

typedef struct settings {
  int32_t dtype;      /* the type of the gradients */
  int32_t grad_dtype; /* the type of the buckets; 0: that of the gradients */
  int32_t average;
  const char* hook; /* NULL: no hook */
} settings_t;

static inline size_t bytes_of(int32_t dtype) {
  return dtype == DSC_DTYPE_F64                              ? 8
         : dtype == DSC_DTYPE_F32                            ? 4
         : dtype == DSC_DTYPE_F16 || dtype == DSC_DTYPE_BF16 ? 2
                                                             : 1;
}

static inline int put(rank_t* self, const model_t* model, void* to, const void* from, size_t bytes) {
  if (model->memory == 0)
    memcpy(to, from, bytes);
  else
    CHECK(self, gpu_upload(to, from, bytes));
  return 0;
}

static inline int get(rank_t* self, const model_t* model, void* to, const void* from, size_t bytes) {
  if (model->memory == 0)
    memcpy(to, from, bytes);
  else
    CHECK(self, gpu_download(to, from, bytes));
  return 0;
}

static inline int make(rank_t* self, const settings_t* settings, int memory, model_t* model) {
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

static inline int drop(rank_t* self, model_t* model) {
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

/* Writes finite numbers whose sums of a few neither overflow nor underflow. */
static inline void fill(void* memory, int32_t dtype, int rank, int step, int p) {
  uint64_t state = (uint64_t)(rank * 1000 + step * 10 + p);
  for (size_t i = 0; i < count_of(p); ++i) {
    const uint64_t bits = next_random(&state);
    const float value = (float)((int64_t)(bits % 20001) - 10000) / 4096.0F;
    const float f32 = value * (i % 7 == 0 ? 3.0F : 0.3F);
    uint32_t wide = 0;
    memcpy(&wide, &f32, sizeof wide);
    const uint16_t upper = (uint16_t)(wide >> 16);              /* as bf16 */
    const uint16_t half = (uint16_t)((bits & 0x83ff) | 0x3400); /* as f16, from 0.25 to 0.5 */
    const uint8_t byte = (uint8_t)((bits & 0x83) | 0x30);       /* small in both 8-bit types */
    if (dtype == DSC_DTYPE_F32) ((float*)memory)[i] = f32;
    if (dtype == DSC_DTYPE_F64) ((double*)memory)[i] = (double)value / 3;
    if (dtype == DSC_DTYPE_BF16) ((uint16_t*)memory)[i] = upper;
    if (dtype == DSC_DTYPE_F16) ((uint16_t*)memory)[i] = half;
    if (bytes_of(dtype) == 1) ((uint8_t*)memory)[i] = byte;
  }
}

/* The gradients of odd parameters are written in their views if the views have the type of the gradients. */
static inline int mark(rank_t* self, const settings_t* settings, const model_t* model, int step) {
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

static inline int begin_to_finish(rank_t* self, const settings_t* settings, const model_t* model, int step) {
  CHECK_OK(self, dsc_bucket_reducer_begin(model->reducer, model->stream));
  PASS_ON(mark(self, settings, model, step));
  CHECK_OK(self, dsc_bucket_reducer_finish(model->reducer, model->stream));
  return 0;
}

static inline int iterate(rank_t* self, const settings_t* settings, const model_t* model, int step) {
  PASS_ON(begin_to_finish(self, settings, model, step));
  CHECK_OK(self, dsc_bucket_reducer_synchronize(model->reducer, -1));
  return 0;
}

/* Checks that both models have the same bits, in views or in gradients. */
static inline int compare_places(rank_t* self, const settings_t* settings, const model_t models[MEMORIES],
                                 int step, bool of_view) {
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

static inline int compare_views(rank_t* self, const settings_t* settings, const model_t models[MEMORIES],
                                int step) {
  return compare_places(self, settings, models, step, true);
}

static inline int compare(rank_t* self, const settings_t* settings, const model_t models[MEMORIES],
                          int step) {
  PASS_ON(compare_places(self, settings, models, step, false));
  return compare_views(self, settings, models, step);
}

#endif
