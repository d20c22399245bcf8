/* The reducer and the functions that take lists of tensors. */
#include <stdint.h>

#include "capi_walk.h"

static float values[16];

#define W walk_world.world
#define R walk_world.reducer

enum { WRONG_TENSORS = 5 };

static dsc_tensor_t tensor(void) {
  const dsc_tensor_t it = {
      .struct_size = sizeof it, .data = values, .count = 8, .dtype = DSC_DTYPE_F32, .device = -1};
  return it;
}

/* Tensors that have one wrong field each, with the code that they must give. */
static void wrong_tensors(dsc_tensor_t wrong[WRONG_TENSORS], dsc_result_t expected[WRONG_TENSORS]) {
  static const int64_t shape[] = {7};
  for (int i = 0; i < WRONG_TENSORS; ++i) {
    wrong[i] = tensor();
    expected[i] = DSC_ERR_INVALID_ARG;
  }
  wrong[0].struct_size = 8;
  wrong[1].dtype = 0;
  wrong[2].ndim = -1;
  wrong[3].shape = shape;
  wrong[3].ndim = 1;
  wrong[4].device = 0;
  expected[4] = DSC_ERR_UNSUPPORTED;
}

static void verify_params(void) {
  dsc_tensor_t good = tensor();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_verify_params(bad, &good, 1));
  WALK_INVALID(dsc_comm_verify_params(W, NULL, 1));
  good.struct_size = 8;
  WALK_INVALID(dsc_comm_verify_params(W, &good, 1));
  good = tensor();
  good.ndim = -1;
  WALK_INVALID(dsc_comm_verify_params(W, &good, 1));
  dsc_tensor_t two[] = {tensor(), tensor()};
  /* every tensor has its own struct_size, so the first one does not hold for the second */
  two[1].struct_size = 0;
  WALK_INVALID(dsc_comm_verify_params(W, two, 2));
  EXPECT(strstr(dsc_last_error_message(), "params[1].struct_size") != NULL);
}

static void broadcast_coalesced(void) {
  dsc_tensor_t wrong[WRONG_TENSORS], good = tensor();
  dsc_result_t expected[WRONG_TENSORS];
  wrong_tensors(wrong, expected);
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_broadcast_coalesced(bad, &good, 1, 0, 0));
  WALK_INVALID(dsc_broadcast_coalesced(W, NULL, 1, 0, 0));
  WALK_INVALID(dsc_broadcast_coalesced(W, &good, 1, -1, 0));
  WALK_INVALID(dsc_broadcast_coalesced(W, &good, 1, 2, 0));
  for (int i = 0; i < WRONG_TENSORS; ++i) WALK(expected[i], dsc_broadcast_coalesced(W, &wrong[i], 1, 0, 0));
  good.data = NULL;
  WALK_INVALID(dsc_broadcast_coalesced(W, &good, 1, 0, 0));
}

static void all_reduce_coalesced(void) {
  dsc_tensor_t wrong[WRONG_TENSORS], good = tensor();
  dsc_result_t expected[WRONG_TENSORS];
  wrong_tensors(wrong, expected);
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_all_reduce_coalesced(bad, &good, 1, DSC_OP_SUM, 0));
  WALK_INVALID(dsc_all_reduce_coalesced(W, NULL, 1, DSC_OP_SUM, 0));
  WALK_INVALID(dsc_all_reduce_coalesced(W, &good, 1, 0, 0));
  WALK_INVALID(dsc_all_reduce_coalesced(W, &good, 1, 99, 0));
  WALK(DSC_ERR_UNSUPPORTED, dsc_all_reduce_coalesced(W, &good, 1, DSC_OP_BAND, 0));
  for (int i = 0; i < WRONG_TENSORS; ++i)
    WALK(expected[i], dsc_all_reduce_coalesced(W, &wrong[i], 1, DSC_OP_SUM, 0));
  const dsc_tensor_t twice[] = {tensor(), good}; /* two parameters with the same memory */
  WALK_INVALID(dsc_all_reduce_coalesced(W, twice, 2, DSC_OP_SUM, 0));
  good.data = NULL;
  WALK_INVALID(dsc_all_reduce_coalesced(W, &good, 1, DSC_OP_SUM, 0));
}

static void broadcast_shapes(void) {
  dsc_tensor_t good = tensor();
  int64_t shapes[16];
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_broadcast_shapes(bad, &good, 1, DSC_DTYPE_F32, 0, shapes));
  WALK_INVALID(dsc_broadcast_shapes(W, NULL, 1, DSC_DTYPE_F32, 0, shapes));
  WALK_INVALID(dsc_broadcast_shapes(W, &good, 1, 0, 0, shapes));
  WALK_INVALID(dsc_broadcast_shapes(W, &good, 1, DSC_DTYPE_F32, -1, shapes));
  WALK_INVALID(dsc_broadcast_shapes(W, &good, 1, DSC_DTYPE_F32, 2, shapes));
  good.struct_size = 8;
  WALK_INVALID(dsc_broadcast_shapes(W, &good, 1, DSC_DTYPE_F32, 0, shapes));
}

static void options_init(void) {
  dsc_bucket_reducer_options_t options;
  memset(&options, 0x77, sizeof options);
  WALK_INVALID(dsc_bucket_reducer_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_bucket_reducer_options_init(&options, sizeof options - 1));
  EXPECT(options.average == 0x77777777);
  WALK(DSC_OK, dsc_bucket_reducer_options_init(&options, sizeof options));
  EXPECT(options.average == DSC_AVERAGE_PRE && options.bucket_bytes == 26214400 && options.sync == 1);
}

static void create(void) {
  dsc_bucket_reducer_t* reducer = R;
  dsc_bucket_reducer_options_t options;
  const dsc_tensor_t good = tensor();
  WALK(DSC_OK, dsc_bucket_reducer_options_init(&options, sizeof options));
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_bucket_reducer_create(bad, &good, 1, NULL, &reducer));
  EXPECT(reducer == NULL);
  WALK_INVALID(dsc_bucket_reducer_create(W, &good, 1, NULL, NULL));
  WALK_INVALID(dsc_bucket_reducer_create(W, NULL, 1, NULL, &reducer));
  options.rebuild = 4;
  WALK_INVALID(dsc_bucket_reducer_create(walk_world.alone, &good, 1, &options, &reducer));
  options.rebuild = DSC_REBUILD_ONCE;
  options.find_unused = 2;
  WALK_INVALID(dsc_bucket_reducer_create(walk_world.alone, &good, 1, &options, &reducer));
  options.find_unused = 0;
  options.static_graph = -1;
  WALK_INVALID(dsc_bucket_reducer_create(walk_world.alone, &good, 1, &options, &reducer));
  options.static_graph = 0;
  options.small_bucket_first = 2;
  WALK_INVALID(dsc_bucket_reducer_create(walk_world.alone, &good, 1, &options, &reducer));
  options.small_bucket_first = 0;
  options.grad_dtype = 99;
  WALK_INVALID(dsc_bucket_reducer_create(walk_world.alone, &good, 1, &options, &reducer));
  options.grad_dtype = DSC_DTYPE_I32;
  WALK(DSC_ERR_UNSUPPORTED, dsc_bucket_reducer_create(walk_world.alone, &good, 1, &options, &reducer));
  options.grad_dtype = 0;
  options.n_buckets = 1; /* n_buckets without the lists of buckets */
  WALK_INVALID(dsc_bucket_reducer_create(W, &good, 1, &options, &reducer));
  options.struct_size = 0;
  WALK_INVALID(dsc_bucket_reducer_create(W, &good, 1, &options, &reducer));
  EXPECT(reducer == NULL);
}

/* Without an iteration nothing can be marked. The steps after this one run inside an iteration. */
static void begin(void) {
  WALK_BAD_HANDLES(WALK_REDUCER, dsc_bucket_reducer_t, dsc_bucket_reducer_begin(bad, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_bucket_reducer_begin(R, values));
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_accumulate(R, 0, values, NULL));
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_mark_ready(R, 0, values, NULL));
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_mark_unused(R, 0));
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_finish(R, NULL));
  WALK(DSC_OK, dsc_bucket_reducer_begin(R, NULL));
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_begin(R, NULL));
}

static void accumulate(void) {
  WALK_BAD_HANDLES(WALK_REDUCER, dsc_bucket_reducer_t, dsc_bucket_reducer_accumulate(bad, 0, values, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_bucket_reducer_accumulate(R, 0, values, values));
  WALK_INVALID(dsc_bucket_reducer_accumulate(R, 2, values, NULL));
  WALK_INVALID(dsc_bucket_reducer_accumulate(R, SIZE_MAX, values, NULL));
  WALK_INVALID(dsc_bucket_reducer_accumulate(R, 0, NULL, NULL));
}

static void mark_ready(void) {
  WALK_BAD_HANDLES(WALK_REDUCER, dsc_bucket_reducer_t, dsc_bucket_reducer_mark_ready(bad, 0, values, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_bucket_reducer_mark_ready(R, 0, values, values));
  WALK_INVALID(dsc_bucket_reducer_mark_ready(R, 2, values, NULL));
  WALK_INVALID(dsc_bucket_reducer_mark_ready(R, SIZE_MAX, values, NULL));
  void* view = NULL;
  WALK(DSC_OK, dsc_bucket_reducer_grad_view(R, 0, &view));
  WALK_INVALID(dsc_bucket_reducer_mark_ready(R, 0, (char*)view + 1, NULL));
}

static void mark_unused(void) {
  WALK_BAD_HANDLES(WALK_REDUCER, dsc_bucket_reducer_t, dsc_bucket_reducer_mark_unused(bad, 0));
  WALK_INVALID(dsc_bucket_reducer_mark_unused(R, 2));
  WALK_INVALID(dsc_bucket_reducer_mark_unused(R, SIZE_MAX));
}

static void grad_view(void) {
  void* view = values;
  WALK_BAD_HANDLES(WALK_REDUCER, dsc_bucket_reducer_t, dsc_bucket_reducer_grad_view(bad, 0, &view));
  WALK_INVALID(dsc_bucket_reducer_grad_view(R, 2, &view));
  WALK_INVALID(dsc_bucket_reducer_grad_view(R, 0, NULL));
  EXPECT(view == values);
  void* again = NULL;
  WALK(DSC_OK, dsc_bucket_reducer_grad_view(R, 1, &view));
  WALK(DSC_OK, dsc_bucket_reducer_grad_view(R, 1, &again));
  EXPECT(view != NULL && view != values && view == again);
}

static void finish(void) {
  WALK_BAD_HANDLES(WALK_REDUCER, dsc_bucket_reducer_t, dsc_bucket_reducer_finish(bad, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_bucket_reducer_finish(R, values));
}

static void buckets(void) {
  size_t indices[2] = {9, 9}, starts[3] = {9, 9, 9}, n = 9;
  WALK_BAD_HANDLES(WALK_REDUCER, dsc_bucket_reducer_t, dsc_bucket_reducer_buckets(bad, indices, starts, &n));
  WALK_INVALID(dsc_bucket_reducer_buckets(R, NULL, starts, &n));
  WALK_INVALID(dsc_bucket_reducer_buckets(R, indices, NULL, &n));
  WALK_INVALID(dsc_bucket_reducer_buckets(R, indices, starts, NULL));
  EXPECT(indices[0] == 9 && starts[0] == 9 && n == 9);
  WALK(DSC_OK, dsc_bucket_reducer_buckets(R, indices, starts, &n));
  EXPECT(n == 1 && starts[0] == 0 && starts[1] == 2);
}

static void synchronize(void) {
  WALK_BAD_HANDLES(WALK_REDUCER, dsc_bucket_reducer_t, dsc_bucket_reducer_synchronize(bad, 0));
  WALK_INVALID(dsc_bucket_reducer_synchronize(R, -2));
  WALK(DSC_OK, dsc_bucket_reducer_synchronize(R, 0));
  WALK(DSC_OK, dsc_bucket_reducer_synchronize(R, -1));
}

static void op_stats(void) {
  dsc_op_stats_t totals = {.struct_size = 0};
  size_t n = 99;
  WALK_BAD_HANDLES(WALK_REDUCER, dsc_bucket_reducer_t, dsc_bucket_reducer_stats(bad, NULL, 0, &n));
  WALK_INVALID(dsc_bucket_reducer_stats(R, NULL, 1, &n));
  WALK_INVALID(dsc_bucket_reducer_stats(R, &totals, 1, &n));
  WALK_INVALID(dsc_bucket_reducer_stats(R, NULL, 0, NULL));
  EXPECT(n == 99);
  WALK(DSC_OK, dsc_bucket_reducer_stats(R, NULL, 0, &n));
}

/* The view of the reducer's memory stays valid. Afterwards every call on the reducer except destroy is
 * refused. */
static void close_reducer(void) {
  void* view = NULL;
  size_t n = 9;
  WALK(DSC_OK, dsc_bucket_reducer_grad_view(R, 0, &view));
  WALK_BAD_HANDLES(WALK_REDUCER, dsc_bucket_reducer_t, dsc_bucket_reducer_close(bad));
  WALK(DSC_OK, dsc_bucket_reducer_close(R));
  WALK(DSC_OK, dsc_bucket_reducer_close(R));
  memset(view, 1, 8 * sizeof(float));
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_begin(R, NULL));
  EXPECT(strstr(dsc_last_error_message(), "the reducer is closed") != NULL);
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_mark_ready(R, 0, values, NULL));
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_finish(R, NULL));
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_stats(R, NULL, 0, &n));
}

static void destroy(void) {
  WALK(DSC_OK, dsc_bucket_reducer_destroy(NULL));
  WALK_BAD_HANDLES_BUT_NULL(WALK_REDUCER, dsc_bucket_reducer_t, dsc_bucket_reducer_destroy(bad));
  WALK(DSC_OK, dsc_bucket_reducer_destroy(R));
  WALK(DSC_ERR_BAD_HANDLE, dsc_bucket_reducer_destroy(R));
}

const walk_step_t walk_reducer[] = {
    {"dsc_comm_verify_params", verify_params},
    {"dsc_broadcast_coalesced", broadcast_coalesced},
    {"dsc_all_reduce_coalesced", all_reduce_coalesced},
    {"dsc_broadcast_shapes", broadcast_shapes},
    {"dsc_bucket_reducer_options_init", options_init},
    {"dsc_bucket_reducer_create", create},
    {"dsc_bucket_reducer_begin", begin},
    {"dsc_bucket_reducer_accumulate", accumulate},
    {"dsc_bucket_reducer_mark_ready", mark_ready},
    {"dsc_bucket_reducer_mark_unused", mark_unused},
    {"dsc_bucket_reducer_grad_view", grad_view},
    {"dsc_bucket_reducer_finish", finish},
    {"dsc_bucket_reducer_buckets", buckets},
    {"dsc_bucket_reducer_synchronize", synchronize},
    {"dsc_bucket_reducer_stats", op_stats},
    {"dsc_bucket_reducer_close", close_reducer},
    {"dsc_bucket_reducer_destroy", destroy},
    {NULL, NULL},
};
