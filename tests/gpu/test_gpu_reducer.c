/* The reducer on devices: gradients that are copied, made in place, accumulated or missing, on several
 * streams.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
  float* more[PARAMS]; /* gradients that are accumulated first */
  void* streams[STREAMS];
} model_t;

/* Returns small whole numbers, whose sums are exact. */
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
                                NULL,
                                names[p],
                                counts[p],
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
    CHECK_OK(self, dsc_bucket_reducer_synchronize(model.reducer, -1));
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

/* All ranks get rank 0's parameters when the reducer is created. dsc_broadcast_coalesced() sends those of any
 * root. */
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
                                NULL,
                                names[p],
                                counts[p],
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

/* Elements of one and two bytes, for which sums of ones are exact. */
static int types_body(rank_t* self) {
  static const struct {
    int32_t dtype, average;
    size_t bytes;
    uint64_t one, result; /* for two ranks */
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
        {sizeof *tensors, NULL, NULL, "w", COUNT, types[t].dtype, 0, self->options.device, 0},
        {sizeof *tensors, NULL, NULL, "v", COUNT, types[t].dtype, 0, self->options.device, 0}};
    dsc_bucket_reducer_options_t options;
    dsc_bucket_reducer_t* reducer = NULL;
    CHECK_OK(self, dsc_bucket_reducer_options_init(&options, sizeof options));
    options.average = types[t].average;
    options.sync = 0;
    const dsc_result_t made = dsc_bucket_reducer_create(self->world, tensors, 2, &options, &reducer);
    const bool is_byte_float = types[t].dtype == DSC_DTYPE_F8E4M3 || types[t].dtype == DSC_DTYPE_F8E5M2;
    if (made == DSC_ERR_UNSUPPORTED && is_byte_float && gpu_is_real())
      continue; /* older GPUs lack this type */
    CHECK_RESULT(self, DSC_OK, made);
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

/* Runs one step in which rank 1 has a NaN at element 7 of parameter c. */
static int step_with_nan(rank_t* self, model_t* model, int step, dsc_result_t wanted) {
  CHECK_OK(self, dsc_bucket_reducer_begin(model->reducer, NULL));
  for (int p = 0; p < PARAMS; ++p) {
    if (p != 2) PASS_ON(give(self, model, p, step));
  }
  void* view = NULL;
  CHECK_OK(self, dsc_bucket_reducer_grad_view(model->reducer, 2, &view));
  float* const place = step % 2 == 0 ? model->grads[2] : view;
  const float nan = NAN;
  PASS_ON(fill(self, place, self->rank, step, 2));
  if (self->rank == 1) CHECK(self, gpu_upload(place + 7, &nan, sizeof nan));
  CHECK_OK(self, dsc_bucket_reducer_mark_ready(model->reducer, 2, place, NULL));
  CHECK_RESULT(self, wanted, dsc_bucket_reducer_finish(model->reducer, NULL));
  if (wanted == DSC_OK) return 0;
  const char* const text = dsc_last_error_message();
  if (!strstr(text, "the gradient of c (index 2) on rank 1 is a NaN or infinite at element 7"))
    FAIL(self, "the message is %s", text);
  if (place == view) return 0;
  float came[MOST];
  CHECK(self, gpu_download(came, place, counts[2] * sizeof(float))); /* nothing was written */
  CHECK(self, came[8] == element(self->rank, step, 2, 8));
  return 0;
}

/* An error reports that some ranks check for such elements and others do not. */
static int modes_body(rank_t* self) {
  model_t model;
  PASS_ON(make(self, &model, DSC_AVERAGE_PRE, 0));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  const int32_t mode = self->rank == 0 ? *(const int32_t*)self->arg : DSC_NONFINITE_CHECK_FAIL;
  CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, mode));
  dsc_result_t failed = dsc_bucket_reducer_begin(model.reducer, NULL);
  for (size_t p = 0; p < PARAMS && failed == DSC_OK; ++p)
    failed = dsc_bucket_reducer_mark_ready(model.reducer, p, model.grads[p], NULL);
  if (failed == DSC_OK) failed = dsc_bucket_reducer_finish(model.reducer, NULL);
  if (failed == DSC_OK) failed = dsc_bucket_reducer_synchronize(model.reducer, -1);
  if (failed != DSC_ERR_MISMATCH || !strstr(dsc_last_error_message(), "non-finite check"))
    FAIL(self, "%d: %s", failed, dsc_last_error_message());
  return drop(self, &model);
}

static int nan_body(rank_t* self) {
  for (int32_t average = DSC_AVERAGE_PRE; average <= DSC_AVERAGE_PYTORCH; ++average) {
    model_t model;
    PASS_ON(make(self, &model, average, 0));
    CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_COUNT));
    PASS_ON(step_with_nan(self, &model, 0, DSC_OK));
    dsc_nonfinite_info_t info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK_OK(self, dsc_comm_nonfinite_info(self->world, 1, &info));
    if (info.elements != 1 || info.rank != 1)
      FAIL(self, "average %d: %d elements, rank %d", average, (int)info.elements, info.rank);
    CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_FAIL));
    for (int step = 1; step < 5; ++step) PASS_ON(step_with_nan(self, &model, step, DSC_ERR_NONFINITE));
    CHECK_OK(self, dsc_comm_nonfinite_info(self->world, 1, &info));
    CHECK(self, info.elements == 4 && info.operations == 4);
    CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_OFF));
    PASS_ON(step_with_nan(self, &model, 1, DSC_OK));
    PASS_ON(drop(self, &model));
  }
  return 0;
}

static void elements_that_are_not_finite(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 3; ++size) assert_int_equal(run_ranks(size, nan_body, NULL), 0);
  for (int32_t mode = DSC_NONFINITE_CHECK_OFF; mode < DSC_NONFINITE_CHECK_FAIL; ++mode)
    assert_int_equal(run_ranks(2, modes_body, &mode), 0);
}

/* Rank 1 has no gradient for e, the other ranks have. */
static int missing_body(rank_t* self) {
  model_t model;
  PASS_ON(make(self, &model, DSC_AVERAGE_PRE, 0));
  CHECK_OK(self, dsc_bucket_reducer_begin(model.reducer, NULL));
  for (int p = PARAMS; p-- > 0;) {
    if (p == 4 && self->rank == 1) continue;
    const dsc_result_t marked = dsc_bucket_reducer_mark_ready(model.reducer, (size_t)p, model.grads[p], NULL);
    if (marked != DSC_OK && self->rank == 0) { /* rank 1 has failed first */
      CHECK(self, marked == DSC_ERR_MISMATCH && strstr(dsc_last_error_message(), "rank 1") != NULL);
      return drop(self, &model);
    }
    CHECK_RESULT(self, DSC_OK, marked);
  }
  const dsc_result_t code = dsc_bucket_reducer_finish(model.reducer, NULL);
  const char* const text = dsc_last_error_message();
  if (self->rank == 1) {
    if (code != DSC_ERR_STATE || !strstr(text, "did not receive a gradient on rank 1: e (index 4)"))
      FAIL(self, "%d: %s", code, text);
  } else if (code == DSC_OK) { /* this operation was in progress; the next one reports the error */
    int64_t until = now_ms() + 10000;
    dsc_result_t next = DSC_OK;
    while (next == DSC_OK && now_ms() < until) {
      next = dsc_bucket_reducer_begin(model.reducer, NULL);
      if (next == DSC_OK) CHECK(self, gpu_synchronize(NULL));
    }
    if (next != DSC_ERR_MISMATCH && next != DSC_ERR_REVOKED)
      FAIL(self, "%d: %s", next, dsc_last_error_message());
  } else if (code != DSC_ERR_MISMATCH || !strstr(text, "rank 1")) {
    FAIL(self, "%d: %s", code, text);
  }
  return drop(self, &model);
}

static void a_gradient_is_missing(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, missing_body, NULL), 0);
}

/* Only the rank with the wrong arguments gets the error, before anything happens. */
static int refusals_body(rank_t* self) {
  model_t model;
  float here[8] = {0};
  dsc_bucket_reducer_t* reducer = NULL;
  PASS_ON(make(self, &model, DSC_AVERAGE_PRE, 0));
  CHECK_OK(self, dsc_bucket_reducer_begin(model.reducer, NULL));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_bucket_reducer_mark_ready(model.reducer, 1, here, NULL));
  CHECK(self,
        strstr(dsc_last_error_message(), "b (index 1): gradient is in host memory, expected memory of dev"));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_bucket_reducer_accumulate(model.reducer, 1, here, NULL));
  CHECK_OK(self, dsc_bucket_reducer_mark_ready(model.reducer, 1, model.grads[1], NULL));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
               dsc_bucket_reducer_mark_ready(model.reducer, 2, model.grads[1], NULL));
  for (int p = 0; p < PARAMS; ++p) {
    if (p != 1) CHECK_OK(self, dsc_bucket_reducer_mark_unused(model.reducer, (size_t)p));
  }
  CHECK_OK(self, dsc_bucket_reducer_finish(model.reducer, NULL));
  dsc_tensor_t tensors[2] = {{sizeof *tensors, here, NULL, "v", 2, DSC_DTYPE_F32, 0, self->options.device, 0},
                             {sizeof *tensors, model.grads[2], NULL, "w", 2, DSC_DTYPE_F32, 0, -1, 0}};
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_broadcast_coalesced(self->world, tensors, 1, 0, 0));
  CHECK(self, strstr(dsc_last_error_message(), "expected -1: data is host memory") != NULL);
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_broadcast_coalesced(self->world, tensors + 1, 1, 0, 0));
  CHECK(self, strstr(dsc_last_error_message(), "data is memory of device") != NULL);
  tensors[0].data = tensors[1].data = NULL;
  dsc_bucket_reducer_options_t options;
  CHECK_OK(self, dsc_bucket_reducer_options_init(&options, sizeof options));
  options.sync = 0;
  const dsc_result_t mixed = dsc_bucket_reducer_create(self->world, tensors, 2, &options, &reducer);
  CHECK(self,
        /* DSC_ERR_CONFIG if the ranks' messages differ */
        mixed == DSC_ERR_UNSUPPORTED || mixed == DSC_ERR_CONFIG);
  CHECK(self, strstr(dsc_last_error_message(), "w (index 1): device is -1, expected ") != NULL);
  static const int64_t rows = 2;
  tensors[0].shape = &rows;
  tensors[0].ndim = tensors[0].expect_sparse = 1;
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED,
               dsc_bucket_reducer_create(self->world, tensors, 1, &options, &reducer));
  CHECK(self, strstr(dsc_last_error_message(), ", expected host memory for sparse gradients") != NULL);
  CHECK_OK(self, dsc_bucket_reducer_create(self->world, tensors + 1, 1, &options, &reducer));
  CHECK_OK(self, dsc_bucket_reducer_begin(reducer, NULL));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED, dsc_bucket_reducer_mark_ready(reducer, 0, here, model.streams[0]));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_bucket_reducer_mark_ready(reducer, 0, model.grads[0], NULL));
  CHECK_OK(self, dsc_bucket_reducer_mark_ready(reducer, 0, here, NULL));
  CHECK_OK(self, dsc_bucket_reducer_finish(reducer, NULL));
  CHECK_OK(self, dsc_bucket_reducer_destroy(reducer));
  return drop(self, &model);
}

static void memory_that_does_not_fit(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, refusals_body, NULL), 0);
}

/* Two streams that only the reducer orders, and a late rank. The next iteration must not overwrite the
 * results, nor gradients that the stream of finish still reads. */
static int order_body(rank_t* self) {
  model_t model;
  PASS_ON(make(self, &model, DSC_AVERAGE_NONE, 0));
  void *const a = model.streams[0], *const b = model.streams[1];
  float* const late = gpu_alloc(64);
  float* const kept = gpu_alloc(counts[2] * sizeof(float));
  CHECK(self, late != NULL && kept != NULL);
  for (int step = 0; step < 10; step += KINDS) { /* the steps in which parameter 0 is copied */
    for (int p = 0; p < PARAMS; ++p) PASS_ON(fill(self, model.grads[p], self->rank, step, p));
    if (self->rank == 1) usleep(50000);
    CHECK_OK(self, dsc_bucket_reducer_begin(model.reducer, a));
    for (int p = 0; p < PARAMS; ++p)
      CHECK_OK(self, dsc_bucket_reducer_mark_ready(model.reducer, (size_t)p, model.grads[p], a));
    if (self->rank == 1) usleep(50000);
    CHECK_OK(self, dsc_broadcast(self->world, late, late, 16, DSC_DTYPE_F32, 1, a, NULL));
    CHECK(self, gpu_copy(kept, model.grads[2], counts[2] * sizeof(float), a));
    CHECK_OK(self, dsc_bucket_reducer_finish(model.reducer, a));
    CHECK_OK(self, dsc_bucket_reducer_begin(model.reducer, b)); /* does not wait for the work on stream a */
    for (int p = 0; p < PARAMS; ++p) {
      if (counts[p] > 0)
        CHECK_OK(self, dsc_bucket_reducer_accumulate(model.reducer, (size_t)p, model.more[p], b));
      CHECK_OK(self, dsc_bucket_reducer_mark_ready(model.reducer, (size_t)p, NULL, b));
    }
    CHECK_OK(self, dsc_bucket_reducer_finish(model.reducer, b));
    CHECK(self, gpu_synchronize(a) && gpu_synchronize(b));
    for (int p = 0; p < PARAMS; p += KINDS) PASS_ON(check(self, model.grads[p], DSC_AVERAGE_NONE, step, p));
    float came[MOST];
    CHECK(self, gpu_download(came, kept, counts[2] * sizeof(float)));
    for (size_t i = 0; i < counts[2]; ++i) CHECK(self, came[i] == element(self->rank, step, 2, i));
  }
  gpu_free(late);
  gpu_free(kept);
  return drop(self, &model);
}

static void streams_wait_for_each_other(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, order_body, NULL), 0);
}

/* A gradient is made in its view, on a stream that only one mark names. That mark does not complete the
 * gradient of a static graph, or belongs to an iteration that is not reduced. */
static int followed_body(rank_t* self) {
  enum { COUNT = 1000, BYTES = COUNT * sizeof(float) };
  const int32_t is_static = *(const int32_t*)self->arg;
  const dsc_tensor_t tensor = {.struct_size = sizeof tensor,
                               .name = "w",
                               .count = COUNT,
                               .dtype = DSC_DTYPE_F32,
                               .device = self->options.device};
  dsc_bucket_reducer_options_t options;
  dsc_bucket_reducer_t* reducer = NULL;
  void *a = gpu_stream(), *b = gpu_stream(), *view = NULL;
  float values[COUNT];
  float *const late = gpu_alloc(64), *const mine = gpu_alloc(BYTES);
  CHECK(self, a && b && late && mine);
  for (int i = 0; i < COUNT; ++i) values[i] = (float)(self->rank + i);
  CHECK(self, gpu_upload(mine, values, BYTES));
  CHECK_OK(self, dsc_bucket_reducer_options_init(&options, sizeof options));
  options.average = DSC_AVERAGE_NONE;
  options.sync = 0;
  options.static_graph = is_static;
  CHECK_OK(self, dsc_bucket_reducer_create(self->world, &tensor, 1, &options, &reducer));
  CHECK_OK(self, dsc_bucket_reducer_grad_view(reducer, 0, &view));
  CHECK_OK(self, dsc_broadcast(self->world, late, late, 16, DSC_DTYPE_F32, 0, b, NULL));
  for (int iteration = 0; iteration < 2; ++iteration) {
    const bool is_late = iteration == (is_static ? 1 : 0);
    if (!is_static) CHECK_OK(self, dsc_bucket_reducer_set_sync(reducer, iteration));
    CHECK_OK(self, dsc_bucket_reducer_begin(reducer, b));
    if (is_late) {
      if (self->rank == 0) usleep(100000);
      CHECK_OK(self, dsc_broadcast(self->world, late, late, 16, DSC_DTYPE_F32, 0, a, NULL));
      CHECK(self, gpu_copy(view, mine, BYTES, a));
    } else if (!is_static) {
      CHECK_OK(self, dsc_bucket_reducer_accumulate(reducer, 0, mine, b));
    }
    CHECK_OK(self, dsc_bucket_reducer_mark_ready(reducer, 0, NULL, is_late ? a : b));
    if (is_static) CHECK_OK(self, dsc_bucket_reducer_mark_ready(reducer, 0, NULL, b));
    CHECK_OK(self, dsc_bucket_reducer_finish(reducer, b));
  }
  CHECK(self, gpu_synchronize(b) && gpu_download(values, view, BYTES));
  for (int i = 0; i < COUNT; ++i) {
    const float wanted = (float)((2 * i + 1) * (is_static ? 1 : 2));
    if (values[i] != wanted)
      FAIL(self, "element %d is %g, expected %g", i, (double)values[i], (double)wanted);
  }
  CHECK_OK(self, dsc_bucket_reducer_destroy(reducer));
  gpu_stream_free(a);
  gpu_stream_free(b);
  gpu_free(late);
  gpu_free(mine);
  return 0;
}

static void streams_of_marks_that_complete_nothing(void** state) {
  (void)state;
  for (int32_t is_static = 0; is_static < 2; ++is_static)
    assert_int_equal(run_ranks(2, followed_body, &is_static), 0);
}

/* An iteration that is recorded once and run again with other gradients. */
static int graph_body(rank_t* self) {
  model_t model;
  PASS_ON(make(self, &model, DSC_AVERAGE_PRE, 0));
  void* const stream = model.streams[0];
  CHECK_OK(self, dsc_barrier(self->world, stream, NULL));
  CHECK(self, gpu_synchronize(stream) && gpu_begin_capture(stream));
  CHECK_OK(self, dsc_bucket_reducer_begin(model.reducer, stream));
  for (int p = 0; p < PARAMS; ++p)
    CHECK_OK(self, dsc_bucket_reducer_mark_ready(model.reducer, (size_t)p, model.grads[p], stream));
  CHECK_OK(self, dsc_bucket_reducer_finish(model.reducer, stream));
  void* const graph = gpu_end_capture(stream);
  CHECK(self, graph != NULL);
  for (int step = 0; step < 10; step += KINDS) { /* the steps in which parameter 0 is copied */
    for (int p = 0; p < PARAMS; ++p) PASS_ON(fill(self, model.grads[p], self->rank, step, p));
    CHECK(self, gpu_run_graph(graph, stream) && gpu_synchronize(stream));
    for (int p = 0; p < PARAMS; p += KINDS) PASS_ON(check(self, model.grads[p], DSC_AVERAGE_PRE, step, p));
  }
  gpu_graph_free(graph);
  CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_COUNT));
  CHECK(self, gpu_begin_capture(stream));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_bucket_reducer_begin(model.reducer, stream));
  gpu_graph_free(gpu_end_capture(stream));
  return drop(self, &model);
}

static void iterations_in_a_graph(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, graph_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_of_all_kinds),
      cmocka_unit_test(parameters_of_one_rank),
      cmocka_unit_test(elements_of_all_types),
      cmocka_unit_test(elements_that_are_not_finite),
      cmocka_unit_test(a_gradient_is_missing),
      cmocka_unit_test(memory_that_does_not_fit),
      cmocka_unit_test(streams_wait_for_each_other),
      cmocka_unit_test(iterations_in_a_graph),
      cmocka_unit_test(streams_of_marks_that_complete_nothing),
  };
  return cmocka_run_group_tests_name("gpu_reducer", tests, NULL, NULL);
}
