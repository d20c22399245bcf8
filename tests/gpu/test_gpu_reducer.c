/* The reducer on devices: gradients that are copied, made in place, collected or missing, on several streams.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "gpu.h"
#include "ranks.h"

enum { PARAMS = 9, STREAMS = 3, MOST = 5000, KINDS = 5 };

static const size_t counts[PARAMS] = {1, 3, 1000, 0, 4097, 257, 64, 5, 4999};
static const char* const names[PARAMS] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};

typedef struct model {
  dsc_bucket_reducer_t* reducer;
  float* params[PARAMS];
  float* grads[PARAMS];
  float* more[PARAMS]; /* what is collected first */
  void* streams[STREAMS];
} model_t;

/* Small whole numbers, whose sums are exact. */
static float element(int rank, int step, int param, size_t i) {
  return (float)((rank + 1) * 4 + (step * 3 + param * 7 + (int)(i % 13)) % 11);
}

static int fill(rank_t* self, float* memory, int rank, int step, int param) {
  float values[MOST];
  for (size_t i = 0; i < counts[param]; ++i) values[i] = element(rank, step, param, i);
  CHECK(self, gpu_upload(memory, values, counts[param] * sizeof(float)));
  return 0;
}

static int make(rank_t* self, model_t* model, int32_t average, int32_t sync) {
  dsc_tensor_t tensors[PARAMS];
  memset(tensors, 0, sizeof tensors);
  memset(model, 0, sizeof *model);
  for (int p = 0; p < PARAMS; ++p) {
    const size_t bytes = counts[p] == 0 ? 4 : counts[p] * sizeof(float);
    model->params[p] = gpu_alloc(bytes);
    model->grads[p] = gpu_alloc(bytes);
    model->more[p] = gpu_alloc(bytes);
    CHECK(self, model->params[p] && model->grads[p] && model->more[p]);
    PASS_ON(fill(self, model->params[p], self->rank, 0, p));
    tensors[p] = (dsc_tensor_t){sizeof *tensors,
                                model->params[p],
                                counts[p],
                                NULL,
                                names[p],
                                DSC_DTYPE_F32,
                                0,
                                self->options.device,
                                0};
  }
  for (int s = 0; s < STREAMS; ++s) CHECK(self, (model->streams[s] = gpu_stream()) != NULL);
  dsc_bucket_reducer_options_t options;
  CHECK_OK(self, dsc_bucket_reducer_options_init(&options, sizeof options));
  options.bucket_bytes = 8192;
  options.first_bucket_bytes = 512;
  options.average = average;
  options.sync = sync;
  CHECK_OK(self, dsc_bucket_reducer_create(self->world, tensors, PARAMS, &options, &model->reducer));
  return 0;
}

static int drop(rank_t* self, model_t* model) {
  CHECK_OK(self, dsc_bucket_reducer_destroy(model->reducer));
  for (int p = 0; p < PARAMS; ++p) {
    gpu_free(model->params[p]);
    gpu_free(model->grads[p]);
    gpu_free(model->more[p]);
  }
  for (int s = 0; s < STREAMS; ++s) gpu_stream_free(model->streams[s]);
  return 0;
}

typedef enum { COPIED, IN_PLACE, COLLECTED, ONLY_COLLECTED, UNUSED } kind_t;

static kind_t kind_of(int param, int step) { return (kind_t)((param + step) % KINDS); }

static int give(rank_t* self, model_t* model, int p, int step) {
  dsc_bucket_reducer_t* const reducer = model->reducer;
  void* const stream = model->streams[(p + step) % STREAMS];
  void* const other = model->streams[(p + step + 1) % STREAMS];
  const kind_t kind = kind_of(p, step);
  void* view = NULL;
  CHECK_OK(self, dsc_bucket_reducer_grad_view(reducer, (size_t)p, &view));
  if (kind == UNUSED) {
    CHECK_OK(self, dsc_bucket_reducer_mark_unused(reducer, (size_t)p));
    return 0;
  }
  PASS_ON(fill(self, kind == IN_PLACE ? view : model->grads[p], self->rank, step, p));
  if (kind == COLLECTED || kind == ONLY_COLLECTED) {
    PASS_ON(fill(self, model->more[p], self->rank, step + 1, p));
    CHECK_OK(self, dsc_bucket_reducer_accumulate(reducer, (size_t)p, model->more[p], other));
  }
  if (kind == ONLY_COLLECTED)
    CHECK_OK(self, dsc_bucket_reducer_accumulate(reducer, (size_t)p, model->grads[p], stream));
  void* const gradient = kind == COPIED || kind == COLLECTED ? model->grads[p] : NULL;
  CHECK_OK(self, dsc_bucket_reducer_mark_ready(reducer, (size_t)p, gradient, stream));
  return 0;
}

static float expected(int size, int32_t average, int step, int p, size_t i) {
  float sum = 0;
  const kind_t kind = kind_of(p, step);
  if (kind == UNUSED) return 0;
  for (int rank = 0; rank < size; ++rank) {
    sum += element(rank, step, p, i);
    if (kind == COLLECTED || kind == ONLY_COLLECTED) sum += element(rank, step + 1, p, i);
  }
  return average == DSC_AVERAGE_NONE ? sum : sum / (float)size;
}

static int check(rank_t* self, const float* memory, int32_t average, int step, int p) {
  float came[MOST];
  CHECK(self, gpu_download(came, memory, counts[p] * sizeof(float)));
  for (size_t i = 0; i < counts[p]; ++i) {
    const float wanted = expected(self->size, average, step, p, i);
    if (!(fabsf(came[i] - wanted) <= 1e-6F * wanted))
      FAIL(self, "average %d, step %d, %s[%zu] is %.9g, expected %.9g", average, step, names[p], i,
           (double)came[i], (double)wanted);
  }
  return 0;
}

static int train(rank_t* self, int32_t average) {
  model_t model;
  PASS_ON(make(self, &model, average, 0));
  for (int step = 0; step < 6; ++step) {
    void* const stream = model.streams[0];
    CHECK_OK(self, dsc_bucket_reducer_begin(model.reducer, stream));
    for (int k = 0; k < PARAMS; ++k) PASS_ON(give(self, &model, (k * 5 + self->rank + step) % PARAMS, step));
    CHECK_OK(self, dsc_bucket_reducer_finish(model.reducer, stream));
    CHECK(self, gpu_synchronize(stream));
    for (int p = 0; p < PARAMS; ++p) {
      void* view = NULL;
      CHECK_OK(self, dsc_bucket_reducer_grad_view(model.reducer, (size_t)p, &view));
      PASS_ON(check(self, view, average, step, p));
      const kind_t kind = kind_of(p, step);
      if (kind == COPIED || kind == COLLECTED) PASS_ON(check(self, model.grads[p], average, step, p));
    }
  }
  return drop(self, &model);
}

static int training_body(rank_t* self) {
  for (int32_t average = DSC_AVERAGE_PRE; average <= DSC_AVERAGE_PYTORCH; ++average)
    PASS_ON(train(self, average));
  return 0;
}

static void gradients_of_all_kinds(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, training_body, NULL), 0);
}

/* Rank 0's parameters, at creation and by the call for it. */
static int parameters_body(rank_t* self) {
  model_t model;
  PASS_ON(make(self, &model, DSC_AVERAGE_PRE, 1));
  dsc_tensor_t tensors[PARAMS];
  memset(tensors, 0, sizeof tensors);
  for (int p = 0; p < PARAMS; ++p) {
    float came[MOST];
    CHECK(self, gpu_download(came, model.params[p], counts[p] * sizeof(float)));
    for (size_t i = 0; i < counts[p]; ++i) CHECK(self, came[i] == element(0, 0, p, i));
    PASS_ON(fill(self, model.params[p], self->rank, 5, p));
    tensors[p] = (dsc_tensor_t){sizeof *tensors,
                                model.params[p],
                                counts[p],
                                NULL,
                                names[p],
                                DSC_DTYPE_F32,
                                0,
                                self->options.device,
                                0};
  }
  for (size_t buffer_bytes = 0; buffer_bytes <= 4096; buffer_bytes += 4096) {
    const int root = self->size - 1;
    CHECK_OK(self, dsc_broadcast_coalesced(self->world, tensors, PARAMS, root, buffer_bytes));
    for (int p = 0; p < PARAMS; ++p) {
      float came[MOST];
      CHECK(self, gpu_download(came, model.params[p], counts[p] * sizeof(float)));
      for (size_t i = 0; i < counts[p]; ++i) CHECK(self, came[i] == element(root, 5, p, i));
    }
  }
  return drop(self, &model);
}

static void parameters_of_one_rank(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, parameters_body, NULL), 0);
}

/* Elements of one byte and of two, whose sums of ones are exact. */
static int types_body(rank_t* self) {
  static const struct {
    int32_t dtype, average;
    size_t bytes;
    uint64_t one, result; /* of two ranks */
  } types[] = {
      {DSC_DTYPE_F16, DSC_AVERAGE_PRE, 2, 0x3c00, 0x3c00},
      {DSC_DTYPE_BF16, DSC_AVERAGE_NONE, 2, 0x3f80, 0x4000},
      {DSC_DTYPE_F8E4M3, DSC_AVERAGE_PRE, 1, 0x38, 0x38},
      {DSC_DTYPE_F8E5M2, DSC_AVERAGE_PYTORCH, 1, 0x3c, 0x3c},
      {DSC_DTYPE_BF16, DSC_AVERAGE_PYTORCH, 2, 0x3f80, 0x3f80},
      {DSC_DTYPE_I64, DSC_AVERAGE_NONE, 8, 1, 2},
      {DSC_DTYPE_U8, DSC_AVERAGE_NONE, 1, 1, 2},
      {DSC_DTYPE_F64, DSC_AVERAGE_POST, 8, 0x3ff0000000000000, 0x3ff0000000000000},
  };
  enum { COUNT = 777 };
  for (size_t t = 0; t < sizeof types / sizeof *types; ++t) {
    char values[COUNT * 8];
    for (size_t i = 0; i < COUNT; ++i) memcpy(values + i * types[t].bytes, &types[t].one, types[t].bytes);
    const size_t bytes = COUNT * types[t].bytes;
    char* const gradient = gpu_alloc(bytes);
    CHECK(self, gradient && gpu_upload(gradient, values, bytes));
    const dsc_tensor_t tensors[2] = {
        {sizeof *tensors, NULL, COUNT, NULL, "w", types[t].dtype, 0, self->options.device, 0},
        {sizeof *tensors, NULL, COUNT, NULL, "v", types[t].dtype, 0, self->options.device, 0}};
    dsc_bucket_reducer_options_t options;
    dsc_bucket_reducer_t* reducer = NULL;
    CHECK_OK(self, dsc_bucket_reducer_options_init(&options, sizeof options));
    options.average = types[t].average;
    options.sync = 0;
    CHECK_OK(self, dsc_bucket_reducer_create(self->world, tensors, 2, &options, &reducer));
    void* view = NULL;
    CHECK_OK(self, dsc_bucket_reducer_grad_view(reducer, 1, &view));
    CHECK_OK(self, dsc_bucket_reducer_begin(reducer, NULL));
    CHECK(self, gpu_upload(view, values, bytes));
    CHECK_OK(self, dsc_bucket_reducer_mark_ready(reducer, 1, view, NULL));
    CHECK_OK(self, dsc_bucket_reducer_mark_ready(reducer, 0, gradient, NULL));
    CHECK_OK(self, dsc_bucket_reducer_finish(reducer, NULL));
    for (int of = 0; of < 2; ++of) {
      CHECK(self, gpu_download(values, of == 0 ? gradient : view, bytes));
      for (size_t i = 0; i < COUNT; ++i)
        if (memcmp(values + i * types[t].bytes, &types[t].result, types[t].bytes) != 0)
          FAIL(self, "type %d, average %d, tensor %d: element %zu is wrong", types[t].dtype, types[t].average,
               of, i);
    }
    CHECK_OK(self, dsc_bucket_reducer_destroy(reducer));
    gpu_free(gradient);
  }
  return 0;
}

static void elements_of_all_types(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, types_body, NULL), 0);
}

/* A NaN on rank 1 in parameter c, which is copied or made in place. */
static int one_nan(rank_t* self, model_t* model, int step, dsc_result_t wanted) {
  CHECK_OK(self, dsc_bucket_reducer_begin(model->reducer, NULL));
  for (int p = 0; p < PARAMS; ++p) PASS_ON(give(self, model, p, step));
  const float nan = NAN;
  void* view = NULL;
  CHECK_OK(self, dsc_bucket_reducer_grad_view(model->reducer, 2, &view));
  (void)nan;
  (void)view;
  CHECK_RESULT(self, wanted, dsc_bucket_reducer_finish(model->reducer, NULL));
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_of_all_kinds),
      cmocka_unit_test(parameters_of_one_rank),
      cmocka_unit_test(elements_of_all_types),
  };
  (void)one_nan;
  return cmocka_run_group_tests_name("gpu_reducer", tests, NULL, NULL);
}
