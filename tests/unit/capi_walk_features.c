/* Functions of the reducer outside its iterations: hooks, buffers, clipping, joins, statistics. */
#include <stdint.h>
#include <stdlib.h>

#include "capi_walk.h"

static float values[16], buffer[4];
static dsc_bucket_reducer_t* reducer; /* in the group of this rank only, with two parameters of 8 elements */

#define W walk_world.alone
#define JOIN walk_world.join
#define BAD_REDUCERS(call) WALK_BAD_HANDLES(WALK_REDUCER, dsc_bucket_reducer_t, call)

static dsc_tensor_t tensor_of(float* data, size_t count) {
  const dsc_tensor_t it = {
      .struct_size = sizeof it, .data = data, .count = count, .dtype = DSC_DTYPE_F32, .device = -1};
  return it;
}

static void make_reducer(void) {
  const dsc_tensor_t params[] = {tensor_of(values, 8), tensor_of(values + 8, 8)};
  dsc_bucket_reducer_options_t options;
  WALK(DSC_OK, dsc_bucket_reducer_options_init(&options, sizeof options));
  options.find_unused = 1;
  WALK(DSC_OK, dsc_bucket_reducer_create(W, params, 2, &options, &reducer));
}

static void iterate(void) {
  WALK(DSC_OK, dsc_bucket_reducer_begin(reducer, NULL));
  WALK(DSC_OK, dsc_bucket_reducer_mark_ready(reducer, 0, values, NULL));
  WALK(DSC_OK, dsc_bucket_reducer_finish(reducer, NULL));
}

static void set_sync(void) {
  make_reducer();
  BAD_REDUCERS(dsc_bucket_reducer_set_sync(bad, 1));
  WALK_INVALID(dsc_bucket_reducer_set_sync(reducer, 2));
  WALK(DSC_OK, dsc_bucket_reducer_begin(reducer, NULL));
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_set_sync(reducer, 0));
  WALK(DSC_OK, dsc_bucket_reducer_finish(reducer, NULL));
  WALK(DSC_OK, dsc_bucket_reducer_set_sync(reducer, 0));
  WALK(DSC_OK, dsc_bucket_reducer_set_sync(reducer, 1));
}

static void unused(void) {
  size_t index = 9, count = 9;
  BAD_REDUCERS(dsc_bucket_reducer_unused(bad, &index, 1, &count));
  WALK_INVALID(dsc_bucket_reducer_unused(reducer, NULL, 1, &count));
  WALK_INVALID(dsc_bucket_reducer_unused(reducer, &index, 1, NULL));
  EXPECT(index == 9 && count == 9);
  iterate();
  WALK(DSC_OK, dsc_bucket_reducer_unused(reducer, &index, 1, &count));
  EXPECT(index == 1 && count == 1);
}

static void rebuilds(void) {
  uint64_t count = 9;
  BAD_REDUCERS(dsc_bucket_reducer_rebuilds(bad, &count));
  WALK_INVALID(dsc_bucket_reducer_rebuilds(reducer, NULL));
  WALK(DSC_OK, dsc_bucket_reducer_rebuilds(reducer, &count));
  EXPECT(count == 0);
}

static void read_grad(void) {
  float gradient[8] = {9};
  BAD_REDUCERS(dsc_bucket_reducer_read_grad(bad, 0, gradient));
  WALK_INVALID(dsc_bucket_reducer_read_grad(reducer, 2, gradient));
  WALK_INVALID(dsc_bucket_reducer_read_grad(reducer, 0, NULL));
  EXPECT(gradient[0] == 9);
  values[0] = 3;
  iterate();
  WALK(DSC_OK, dsc_bucket_reducer_read_grad(reducer, 0, gradient));
  EXPECT(gradient[0] == 3);
}

static void mark_sparse(void) {
  const int64_t row = 0;
  BAD_REDUCERS(dsc_bucket_reducer_mark_sparse(bad, 0, &row, values, 1));
  WALK_INVALID(dsc_bucket_reducer_mark_sparse(reducer, 0, NULL, values, 1));
  WALK_INVALID(dsc_bucket_reducer_mark_sparse(reducer, 0, &row, NULL, 1));
  WALK_INVALID(dsc_bucket_reducer_mark_sparse(reducer, 2, &row, values, 1));
  WALK_INVALID(dsc_bucket_reducer_mark_sparse(reducer, 0, &row, values, 1)); /* parameter 0 is not sparse */
}

static void sparse(void) {
  static const int64_t shape[] = {4, 2}, rows[] = {1, 3, 1}, wrong[] = {0, 4, -1};
  dsc_tensor_t param = tensor_of(values, 8);
  dsc_bucket_reducer_t* own = NULL;
  const int64_t* indices = rows;
  const void* found = values;
  size_t n = 9;
  param.expect_sparse = 1;
  WALK_INVALID(dsc_bucket_reducer_create(W, &param, 1, NULL, &own)); /* the tensor has no shape */
  param.shape = shape;
  param.ndim = 2;
  WALK(DSC_OK, dsc_bucket_reducer_create(W, &param, 1, NULL, &own));
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_mark_sparse(own, 0, rows, values, 3));
  WALK(DSC_OK, dsc_bucket_reducer_begin(own, NULL));
  WALK_INVALID(dsc_bucket_reducer_mark_sparse(own, 0, wrong, values, 2));
  WALK_INVALID(dsc_bucket_reducer_mark_sparse(own, 0, wrong + 2, values, 1));
  WALK_INVALID(dsc_bucket_reducer_mark_ready(own, 0, values, NULL));
  WALK_INVALID(dsc_bucket_reducer_accumulate(own, 0, values, NULL));
  const float three_rows[] = {1, 2, 3, 4, 5, 6};
  WALK(DSC_OK, dsc_bucket_reducer_mark_sparse(own, 0, rows, three_rows, 3));
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_sparse(own, 0, &indices, &found, &n));
  WALK(DSC_OK, dsc_bucket_reducer_finish(own, NULL));
  BAD_REDUCERS(dsc_bucket_reducer_sparse(bad, 0, &indices, &found, &n));
  WALK_INVALID(dsc_bucket_reducer_sparse(own, 0, NULL, &found, &n));
  WALK_INVALID(dsc_bucket_reducer_sparse(own, 0, &indices, NULL, &n));
  WALK_INVALID(dsc_bucket_reducer_sparse(own, 0, &indices, &found, NULL));
  WALK_INVALID(dsc_bucket_reducer_sparse(own, 1, &indices, &found, &n));
  EXPECT(indices == rows && found == values && n == 9);
  WALK(DSC_OK, dsc_bucket_reducer_sparse(own, 0, &indices, &found, &n));
  const float* sums = found;
  EXPECT(n == 2 && indices[0] == 1 && indices[1] == 3 && sums[0] == 6 && sums[1] == 8 && sums[2] == 3 &&
         sums[3] == 4);
  WALK(DSC_OK, dsc_bucket_reducer_destroy(own));
}

static void set_buffers(void) {
  dsc_tensor_t given = tensor_of(buffer, 4);
  BAD_REDUCERS(dsc_bucket_reducer_set_buffers(bad, &given, 1));
  WALK_INVALID(dsc_bucket_reducer_set_buffers(reducer, NULL, 1));
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_sync_buffers(reducer, DSC_BUFFER_SYNC_MEAN));
  given.data = NULL;
  WALK_INVALID(dsc_bucket_reducer_set_buffers(reducer, &given, 1));
  given = tensor_of(buffer, 4);
  WALK(DSC_OK, dsc_bucket_reducer_set_buffers(reducer, &given, 1));
}

static void sync_buffers(void) {
  BAD_REDUCERS(dsc_bucket_reducer_sync_buffers(bad, DSC_BUFFER_SYNC_MEAN));
  WALK_INVALID(dsc_bucket_reducer_sync_buffers(reducer, 0));
  WALK_INVALID(dsc_bucket_reducer_sync_buffers(reducer, 3));
  WALK(DSC_OK, dsc_bucket_reducer_sync_buffers(reducer, DSC_BUFFER_SYNC_MEAN));
  WALK(DSC_OK, dsc_bucket_reducer_sync_buffers(reducer, DSC_BUFFER_SYNC_BROADCAST));
}

static void clip_options(void) {
  dsc_clip_options_t options;
  WALK_INVALID(dsc_clip_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_clip_options_init(&options, sizeof options - 1));
  WALK(DSC_OK, dsc_clip_options_init(&options, sizeof options));
  EXPECT(options.scale == 1 && options.norm == DSC_NORM_TWO);
}

static void clip(void) {
  dsc_clip_options_t options;
  double norm = 9;
  WALK(DSC_OK, dsc_clip_options_init(&options, sizeof options));
  BAD_REDUCERS(dsc_bucket_reducer_clip(bad, NULL, &norm));
  WALK_INVALID(dsc_bucket_reducer_clip(reducer, NULL, NULL));
  options.max_norm = -1;
  WALK_INVALID(dsc_bucket_reducer_clip(reducer, &options, &norm));
  options.max_norm = 1;
  options.scale = 0;
  WALK_INVALID(dsc_bucket_reducer_clip(reducer, &options, &norm));
  options.scale = 1;
  options.norm = 3;
  WALK_INVALID(dsc_bucket_reducer_clip(reducer, &options, &norm));
  options.norm = DSC_NORM_MAX;
  options.reserved = 1;
  WALK_INVALID(dsc_bucket_reducer_clip(reducer, &options, &norm));
  options.reserved = 0;
  options.shards = (dsc_comm_t*)walk_bad_handle(WALK_COMM, 1);
  WALK(DSC_ERR_BAD_HANDLE, dsc_bucket_reducer_clip(reducer, &options, &norm));
  options.shards = NULL;
  EXPECT(norm == 9);
  values[0] = 4;
  iterate();
  WALK(DSC_OK, dsc_bucket_reducer_clip(reducer, &options, &norm));
  EXPECT(norm == 4 && values[0] > 0.99F && values[0] <= 1);
}

static void stats(void) {
  char text[4096] = "untouched";
  size_t bytes = 9;
  BAD_REDUCERS(dsc_bucket_reducer_stats_json(bad, text, sizeof text, &bytes));
  WALK_INVALID(dsc_bucket_reducer_stats_json(reducer, NULL, 1, &bytes));
  WALK_INVALID(dsc_bucket_reducer_stats_json(reducer, text, sizeof text, NULL));
  EXPECT(strcmp(text, "untouched") == 0 && bytes == 9);
  WALK(DSC_TRUNCATED, dsc_bucket_reducer_stats_json(reducer, text, 8, &bytes));
  WALK(DSC_OK, dsc_bucket_reducer_stats_json(reducer, text, sizeof text, &bytes));
  EXPECT(strlen(text) + 1 == bytes && text[0] == '{');
}

static void draw(void) {
  static char text[65536] = "untouched";
  size_t bytes = 9;
  BAD_REDUCERS(dsc_bucket_reducer_draw(bad, text, sizeof text, &bytes));
  WALK_INVALID(dsc_bucket_reducer_draw(reducer, NULL, 1, &bytes));
  WALK_INVALID(dsc_bucket_reducer_draw(reducer, text, sizeof text, NULL));
  EXPECT(strcmp(text, "untouched") == 0 && bytes == 9);
  WALK(DSC_OK, dsc_bucket_reducer_draw(reducer, text, sizeof text, &bytes));
  EXPECT(strlen(text) + 1 == bytes && strncmp(text, "<svg", 4) == 0);
}

static int32_t hook(void* context, const dsc_bucket_t* bucket, dsc_work_t** work) {
  ++*(int*)context;
  return bucket->step == 0 && *work == NULL ? 0 : 1;
}

static void set_hook(void) {
  int calls = 0;
  BAD_REDUCERS(dsc_bucket_reducer_set_hook(bad, hook, &calls, NULL));
  WALK(DSC_OK, dsc_bucket_reducer_set_hook(reducer, hook, &calls, "counts"));
  WALK(DSC_OK, dsc_bucket_reducer_begin(reducer, NULL));
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_set_hook(reducer, NULL, NULL, NULL));
  WALK(DSC_OK, dsc_bucket_reducer_finish(reducer, NULL));
  EXPECT(calls == 1);
  WALK(DSC_OK, dsc_bucket_reducer_set_hook(reducer, NULL, NULL, NULL));
}

static void save_hook(void) {
  char state[512] = "untouched";
  size_t bytes = 9;
  BAD_REDUCERS(dsc_bucket_reducer_save_hook(bad, state, sizeof state, &bytes));
  /* no hook is set */
  WALK(DSC_ERR_STATE, dsc_bucket_reducer_save_hook(reducer, state, sizeof state, &bytes));
  WALK(DSC_OK, dsc_bucket_reducer_use_hook(reducer, "onebit"));
  WALK_INVALID(dsc_bucket_reducer_save_hook(reducer, NULL, 1, &bytes));
  WALK_INVALID(dsc_bucket_reducer_save_hook(reducer, state, sizeof state, NULL));
  EXPECT(strcmp(state, "untouched") == 0 && bytes == 9);
  iterate();
  WALK(DSC_TRUNCATED, dsc_bucket_reducer_save_hook(reducer, state, 8, &bytes));
  WALK(DSC_OK, dsc_bucket_reducer_save_hook(reducer, state, sizeof state, &bytes));
  EXPECT(bytes > 8 && bytes < sizeof state);
}

/* The state is cut after every byte, and every byte is changed: each is refused. */
static void load_hook(void) {
  unsigned char state[512];
  size_t bytes = 0;
  BAD_REDUCERS(dsc_bucket_reducer_load_hook(bad, state, 1));
  WALK(DSC_OK, dsc_bucket_reducer_save_hook(reducer, state, sizeof state, &bytes));
  WALK_INVALID(dsc_bucket_reducer_load_hook(reducer, NULL, bytes));
  for (size_t cut = 0; cut < bytes; ++cut) WALK_INVALID(dsc_bucket_reducer_load_hook(reducer, state, cut));
  for (size_t at = 0; at < bytes; ++at) {
    state[at] ^= 0x80;
    WALK_INVALID(dsc_bucket_reducer_load_hook(reducer, state, bytes));
    state[at] ^= 0x80;
  }
  WALK(DSC_OK, dsc_bucket_reducer_load_hook(reducer, state, bytes));
  iterate();
}

static void use_hook(void) {
  static const char* const wrong[] = {"",
                                      "fp61",
                                      "fp16(",
                                      "fp16)",
                                      "fp16(int8)",
                                      "int8(block=3)",
                                      "int8(block=x)",
                                      "int8(blok=4)",
                                      "int8(block=4,block=4)",
                                      "local_sgd",
                                      "topk(ratio=2)",
                                      "allreduce(fp16)",
                                      "fp16(bf16(topk))",
                                      "powersgd(rank=1.5)"};
  BAD_REDUCERS(dsc_bucket_reducer_use_hook(bad, "fp16"));
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i)
    WALK_INVALID(dsc_bucket_reducer_use_hook(reducer, wrong[i]));
  WALK(DSC_OK, dsc_bucket_reducer_use_hook(reducer, " bf16 ( powersgd( rank=2, start_iteration = 1 ) ) "));
  iterate();
  iterate();
  WALK(DSC_OK, dsc_bucket_reducer_use_hook(reducer, NULL));
}

static void list_hooks(void) {
  char text[4096] = "";
  size_t bytes = 0;
  WALK_INVALID(dsc_bucket_hooks(NULL, 1, &bytes));
  WALK_INVALID(dsc_bucket_hooks(text, sizeof text, NULL));
  WALK(DSC_OK, dsc_bucket_hooks(text, sizeof text, &bytes));
  EXPECT(strstr(text, "powersgd(rank=1, ") != NULL);
}

static void join_options(void) {
  dsc_join_options_t options;
  WALK_INVALID(dsc_join_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_join_options_init(&options, sizeof options - 1));
  WALK(DSC_OK, dsc_join_options_init(&options, sizeof options));
  EXPECT(options.divide_by_initial == 1 && options.throw_on_early_end == 0);
}

static void join_create(void) {
  dsc_join_options_t options;
  dsc_bucket_reducer_t* wrong = walk_bad_handle(WALK_REDUCER, 1);
  WALK(DSC_OK, dsc_join_options_init(&options, sizeof options));
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_join_create(bad, &reducer, 1, NULL, &JOIN));
  WALK_INVALID(dsc_join_create(W, NULL, 1, NULL, &JOIN));
  WALK_INVALID(dsc_join_create(W, &reducer, 0, NULL, &JOIN));
  WALK_INVALID(dsc_join_create(W, &reducer, 1, NULL, NULL));
  WALK(DSC_ERR_BAD_HANDLE, dsc_join_create(W, &wrong, 1, NULL, &JOIN));
  options.divide_by_initial = 2;
  WALK_INVALID(dsc_join_create(W, &reducer, 1, &options, &JOIN));
  EXPECT(JOIN == NULL);
  WALK(DSC_OK, dsc_join_create(W, &reducer, 1, NULL, &JOIN));
  walk_world.stale_join = JOIN;
  WALK(DSC_OK, dsc_join_destroy(JOIN));
  WALK(DSC_OK, dsc_join_create(W, &reducer, 1, NULL, &JOIN));
  dsc_join_t* second = NULL;
  WALK(DSC_ERR_STATE, dsc_join_create(W, &reducer, 1, NULL, &second));
}

static void join_finish(void) {
  dsc_tensor_t param = tensor_of(values, 8);
  int32_t last = -1;
  WALK_BAD_HANDLES(WALK_JOIN, dsc_join_t, dsc_join_finish(bad, NULL, 0, NULL));
  WALK_INVALID(dsc_join_finish(JOIN, NULL, 1, &last));
  iterate();
  WALK(DSC_OK, dsc_join_finish(JOIN, &param, 1, &last));
  EXPECT(last == 0);
  WALK(DSC_ERR_STATE, dsc_join_finish(JOIN, NULL, 0, &last));
}

static void join_destroy(void) {
  WALK(DSC_OK, dsc_join_destroy(NULL));
  WALK_BAD_HANDLES_BUT_NULL(WALK_JOIN, dsc_join_t, dsc_join_destroy(bad));
  WALK(DSC_OK, dsc_join_destroy(JOIN));
  WALK(DSC_ERR_BAD_HANDLE, dsc_join_destroy(JOIN));
  WALK(DSC_OK, dsc_bucket_reducer_destroy(reducer));
}

const walk_step_t walk_features[] = {
    {"dsc_bucket_reducer_set_sync", set_sync},
    {"dsc_bucket_reducer_unused", unused},
    {"dsc_bucket_reducer_rebuilds", rebuilds},
    {"dsc_bucket_reducer_read_grad", read_grad},
    {"dsc_bucket_reducer_mark_sparse", mark_sparse},
    {"dsc_bucket_reducer_sparse", sparse},
    {"dsc_bucket_reducer_set_buffers", set_buffers},
    {"dsc_bucket_reducer_sync_buffers", sync_buffers},
    {"dsc_clip_options_init", clip_options},
    {"dsc_bucket_reducer_clip", clip},
    {"dsc_bucket_reducer_stats_json", stats},
    {"dsc_bucket_reducer_draw", draw},
    {"dsc_bucket_reducer_set_hook", set_hook},
    {"dsc_bucket_reducer_save_hook", save_hook},
    {"dsc_bucket_reducer_load_hook", load_hook},
    {"dsc_bucket_reducer_use_hook", use_hook},
    {"dsc_bucket_hooks", list_hooks},
    {"dsc_join_options_init", join_options},
    {"dsc_join_create", join_create},
    {"dsc_join_finish", join_finish},
    {"dsc_join_destroy", join_destroy},
    {NULL, NULL},
};
