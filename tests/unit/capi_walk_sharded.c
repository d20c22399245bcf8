/* Sharded parameters, in a group that has only this rank: stage 3, two units of one parameter each. */
#include <math.h>
#include <stdint.h>

#include "capi_walk.h"

#define S walk_world.sharded

static float values[8];

static dsc_tensor_t tensor(void) {
  const dsc_tensor_t it = {
      .struct_size = sizeof it, .data = values, .count = 8, .dtype = DSC_DTYPE_F32, .device = -1};
  return it;
}

static const size_t counts[] = {5, 3}, huge[] = {SIZE_MAX / 2, SIZE_MAX / 2};
static const dsc_dtype_t dtypes[] = {DSC_DTYPE_F32, DSC_DTYPE_BF16}, wrong_dtypes[] = {DSC_DTYPE_F32, 0};

static void plan_options_init(void) {
  dsc_shard_plan_options_t options;
  memset(&options, 0x77, sizeof options);
  WALK_INVALID(dsc_shard_plan_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_shard_plan_options_init(&options, sizeof options - 1));
  EXPECT(options.layout == 0x77777777);
  WALK(DSC_OK, dsc_shard_plan_options_init(&options, sizeof options));
  EXPECT(options.layout == DSC_SHARD_LAYOUT_UNIT && options.bucket_elements == 40000000 &&
         options.alignment == 16);
  EXPECT(options.unit_starts == NULL && options.n_units == 0 && options.wide_padding == 0);
}

enum { WRONG_PLANS = 11 };

/* Options that have one wrong field each. */
static void wrong_plans(dsc_shard_plan_options_t wrong[WRONG_PLANS]) {
  static const size_t late[] = {1}, falling[] = {0, 0}, outside[] = {0, 2}, good[] = {0, 1};
  static const uint8_t alone[] = {0, 2}, one[] = {0, 1};
  for (int i = 0; i < WRONG_PLANS; ++i) WALK(DSC_OK, dsc_shard_plan_options_init(&wrong[i], sizeof wrong[i]));
  wrong[0].struct_size = 8;
  wrong[1].layout = 5;
  wrong[2].wide_padding = 2;
  wrong[3].alignment = 0;
  wrong[4].unit_starts = late;
  wrong[4].n_units = 1;
  wrong[5].unit_starts = falling;
  wrong[5].n_units = 2;
  wrong[6].unit_starts = outside;
  wrong[6].n_units = 2;
  wrong[7].unit_starts = good; /* unit_starts without their number */
  wrong[8].alone = alone;
  wrong[9].unit_starts = good;
  wrong[9].n_units = 2;
  wrong[9].alone = one; /* with given units there is nothing to plan */
  wrong[10].layout = DSC_SHARD_LAYOUT_MEGATRON;
  wrong[10].unit_starts = good;
  wrong[10].n_units = 2;
}

static void plan(void) {
  dsc_shard_plan_options_t wrong[WRONG_PLANS];
  wrong_plans(wrong);
  size_t buckets[2] = {9, 9}, starts[2] = {9, 9}, n = 9;
  dsc_shard_bucket_t list[2] = {{.struct_size = sizeof *list}};
  WALK_INVALID(dsc_shard_plan(NULL, dtypes, 2, 2, NULL, buckets, starts, list, 2, &n));
  WALK_INVALID(dsc_shard_plan(counts, NULL, 2, 2, NULL, buckets, starts, list, 2, &n));
  WALK_INVALID(dsc_shard_plan(counts, wrong_dtypes, 2, 2, NULL, buckets, starts, list, 2, &n));
  WALK_INVALID(dsc_shard_plan(counts, dtypes, 0, 2, NULL, buckets, starts, list, 2, &n));
  WALK_INVALID(dsc_shard_plan(counts, dtypes, 2, 0, NULL, buckets, starts, list, 2, &n));
  WALK_INVALID(dsc_shard_plan(counts, dtypes, 2, (size_t)1 << 31, NULL, buckets, starts, list, 2, &n));
  WALK_INVALID(dsc_shard_plan(counts, dtypes, 2, 2, NULL, NULL, starts, list, 2, &n));
  WALK_INVALID(dsc_shard_plan(counts, dtypes, 2, 2, NULL, buckets, NULL, list, 2, &n));
  WALK_INVALID(dsc_shard_plan(counts, dtypes, 2, 2, NULL, buckets, starts, NULL, 2, &n));
  WALK_INVALID(dsc_shard_plan(counts, dtypes, 2, 2, NULL, buckets, starts, list, 2, NULL));
  for (int i = 0; i < WRONG_PLANS; ++i)
    WALK_INVALID(dsc_shard_plan(counts, dtypes, 2, 2, &wrong[i], buckets, starts, list, 2, &n));
  WALK(DSC_ERR_OVERFLOW, dsc_shard_plan(huge, dtypes, 2, 2, NULL, buckets, starts, list, 2, &n));
  EXPECT(buckets[0] == 9 && starts[0] == 9 && n == 9 && list[0].size == 0);
  WALK(DSC_OK, dsc_shard_plan(counts, dtypes, 2, 2, NULL, buckets, starts, list, 2, &n));
  EXPECT(n == 2 && buckets[0] == 0 && buckets[1] == 1 && starts[0] == 0 && starts[1] == 0);
  EXPECT(list[0].size == 32 && list[0].used == 5 && list[1].used == 3 && list[1].dtype == DSC_DTYPE_BF16);
  WALK(DSC_TRUNCATED, dsc_shard_plan(counts, dtypes, 2, 2, NULL, buckets, starts, list, 1, &n));
  WALK(DSC_OK, dsc_shard_plan(counts, dtypes, 2, 2, NULL, buckets, starts, NULL, 0, &n));
  EXPECT(n == 2);
}

static void copies(void) {
  dsc_shard_plan_options_t wrong[WRONG_PLANS];
  wrong_plans(wrong);
  size_t n = 9;
  dsc_shard_copy_t list[4] = {{.struct_size = sizeof *list}};
  WALK_INVALID(dsc_shard_copies(NULL, dtypes, 2, 2, NULL, 1, NULL, 0, list, 4, &n));
  WALK_INVALID(dsc_shard_copies(counts, NULL, 2, 2, NULL, 1, NULL, 0, list, 4, &n));
  WALK_INVALID(dsc_shard_copies(counts, wrong_dtypes, 2, 2, NULL, 1, NULL, 0, list, 4, &n));
  WALK_INVALID(dsc_shard_copies(counts, dtypes, 0, 2, NULL, 1, NULL, 0, list, 4, &n));
  WALK_INVALID(dsc_shard_copies(counts, dtypes, 2, 0, NULL, 1, NULL, 0, list, 4, &n));
  WALK_INVALID(dsc_shard_copies(counts, dtypes, 2, 2, NULL, 0, NULL, 0, list, 4, &n));
  WALK_INVALID(dsc_shard_copies(counts, dtypes, 2, 2, NULL, 1, NULL, 1, list, 4, &n));
  WALK_INVALID(dsc_shard_copies(counts, dtypes, 2, 2, NULL, 1, NULL, 0, NULL, 4, &n));
  WALK_INVALID(dsc_shard_copies(counts, dtypes, 2, 2, NULL, 1, NULL, 0, list, 4, NULL));
  for (int i = 0; i < WRONG_PLANS; ++i) {
    WALK_INVALID(dsc_shard_copies(counts, dtypes, 2, 2, &wrong[i], 1, NULL, 0, list, 4, &n));
    WALK_INVALID(dsc_shard_copies(counts, dtypes, 2, 2, NULL, 1, &wrong[i], 0, list, 4, &n));
  }
  WALK(DSC_ERR_OVERFLOW, dsc_shard_copies(huge, dtypes, 2, 2, NULL, 1, NULL, 0, list, 4, &n));
  EXPECT(n == 9 && list[0].count == 0);
  dsc_shard_plan_options_t parts;
  WALK(DSC_OK, dsc_shard_plan_options_init(&parts, sizeof parts));
  parts.layout = DSC_SHARD_LAYOUT_PARTITIONED;
  WALK(DSC_OK, dsc_shard_copies(counts, dtypes, 2, 2, &parts, 1, NULL, 0, list, 4, &n));
  EXPECT(n == 4 && list[1].from_shard == 1 && list[1].from_start == 0 && list[1].to_start == 3);
  EXPECT(list[1].count == 2 && list[2].param == 1 && list[2].to_bucket == 1);
}

static void options_init(void) {
  dsc_sharded_options_t options;
  memset(&options, 0x77, sizeof options);
  WALK_INVALID(dsc_sharded_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_sharded_options_init(&options, sizeof options - 1));
  EXPECT(options.stage == 0x77777777);
  WALK(DSC_OK, dsc_sharded_options_init(&options, sizeof options));
  EXPECT(options.plan == NULL && options.stage == 2 && options.average == DSC_AVERAGE_PRE &&
         options.sync == 1);
  EXPECT(options.grad_dtype == 0 && options.shard_size == 0 && options.prefetch == 1 &&
         options.max_live_bytes == 0);
}

static void create(void) {
  dsc_tensor_t param = tensor();
  dsc_comm_t* const alone = walk_world.alone;
  dsc_sharded_t* made = S;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_sharded_create(bad, &param, 1, NULL, &made));
  EXPECT(made == NULL);
  WALK_INVALID(dsc_sharded_create(alone, &param, 1, NULL, NULL));
  WALK_INVALID(dsc_sharded_create(alone, NULL, 1, NULL, &made));
  WALK_INVALID(dsc_sharded_create(alone, &param, 0, NULL, &made));
  dsc_shard_plan_options_t wrong_plan;
  WALK(DSC_OK, dsc_shard_plan_options_init(&wrong_plan, sizeof wrong_plan));
  wrong_plan.layout = 0;
  enum { WRONG = 10 };
  dsc_sharded_options_t options[WRONG];
  for (int i = 0; i < WRONG; ++i) WALK(DSC_OK, dsc_sharded_options_init(&options[i], sizeof *options));
  options[0].struct_size = 8;
  options[1].stage = 0;
  options[2].stage = 4;
  options[3].average = DSC_AVERAGE_PYTORCH;
  options[4].shard_size = 2;
  options[5].shard_size = -1;
  options[6].prefetch = -1;
  options[7].sync = 2;
  options[8].max_live_bytes = 1;
  options[9].plan = &wrong_plan;
  for (int i = 0; i < WRONG; ++i) WALK_INVALID(dsc_sharded_create(alone, &param, 1, &options[i], &made));
  WALK(DSC_OK, dsc_sharded_options_init(options, sizeof *options));
  options->grad_dtype = DSC_DTYPE_F64;
  WALK(DSC_ERR_UNSUPPORTED, dsc_sharded_create(alone, &param, 1, options, &made));
  options->grad_dtype = DSC_DTYPE_I32;
  WALK(DSC_ERR_UNSUPPORTED, dsc_sharded_create(alone, &param, 1, options, &made));
  param.device = 0;
  WALK(DSC_ERR_UNSUPPORTED, dsc_sharded_create(alone, &param, 1, NULL, &made));
  param = tensor();
  param.data = NULL;
  WALK_INVALID(dsc_sharded_create(alone, &param, 1, NULL, &made));
  EXPECT(made == NULL);
  options->grad_dtype = 0;
  options->sync = 0; /* without synchronization NULL is valid and stands for zeros */
  WALK(DSC_OK, dsc_sharded_create(alone, &param, 1, options, &made));
  WALK(DSC_OK, dsc_sharded_destroy(made));
}

/* The steps after this one run inside an iteration. */
static void begin(void) {
  double norm = 9;
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_begin(bad, 0, NULL));
  WALK_INVALID(dsc_sharded_begin(S, 2, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_sharded_begin(S, 0, values));
  WALK(DSC_ERR_STATE, dsc_sharded_begin(S, 1, NULL));
  WALK(DSC_ERR_STATE, dsc_sharded_accumulate(S, 0, values, 0, NULL));
  WALK(DSC_ERR_STATE, dsc_sharded_mark_ready(S, 0, values, 0, NULL));
  WALK(DSC_ERR_STATE, dsc_sharded_mark_unused(S, 0));
  WALK(DSC_ERR_STATE, dsc_sharded_finish(S, NULL));
  WALK(DSC_ERR_STATE, dsc_sharded_clip(S, NULL, &norm, NULL));
  WALK(DSC_OK, dsc_sharded_begin(S, 0, NULL));
  WALK(DSC_ERR_STATE, dsc_sharded_begin(S, 0, NULL));
  EXPECT(norm == 9);
}

static void accumulate(void) {
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_accumulate(bad, 0, values, 0, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_sharded_accumulate(S, 0, values, 0, values));
  WALK_INVALID(dsc_sharded_accumulate(S, 2, values, 0, NULL));
  WALK_INVALID(dsc_sharded_accumulate(S, SIZE_MAX, values, 0, NULL));
  WALK_INVALID(dsc_sharded_accumulate(S, 0, NULL, 0, NULL));
  WALK_INVALID(dsc_sharded_accumulate(S, 0, values, DSC_DTYPE_F16, NULL));
  WALK(DSC_OK, dsc_sharded_accumulate(S, 0, values, DSC_DTYPE_F32, NULL));
  WALK(DSC_ERR_STATE, dsc_sharded_mark_unused(S, 0)); /* a gradient was accumulated */
}

static void mark_ready(void) {
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_mark_ready(bad, 0, values, 0, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_sharded_mark_ready(S, 0, values, 0, values));
  WALK_INVALID(dsc_sharded_mark_ready(S, 2, values, 0, NULL));
  WALK_INVALID(dsc_sharded_mark_ready(S, 0, values, DSC_DTYPE_F16, NULL));
  WALK(DSC_OK, dsc_sharded_mark_ready(S, 0, values, 0, NULL));
  WALK(DSC_ERR_STATE, dsc_sharded_mark_ready(S, 0, values, 0, NULL));
  WALK(DSC_ERR_STATE, dsc_sharded_accumulate(S, 0, values, 0, NULL));
  WALK(DSC_ERR_STATE, dsc_sharded_step_done(S, 1, NULL));
}

static void mark_unused(void) {
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_mark_unused(bad, 0));
  WALK_INVALID(dsc_sharded_mark_unused(S, 2));
  WALK(DSC_ERR_STATE, dsc_sharded_mark_unused(S, 0));
  WALK(DSC_OK, dsc_sharded_mark_unused(S, 1));
}

static void finish(void) {
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_finish(bad, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_sharded_finish(S, values));
  WALK(DSC_OK, dsc_sharded_finish(S, NULL));
  WALK(DSC_ERR_STATE, dsc_sharded_finish(S, NULL));
  WALK(DSC_ERR_STATE, dsc_sharded_begin(S, 0, NULL)); /* the gradients were not used yet */
}

static dsc_clip_options_t clip_to(double max_norm, double scale) {
  dsc_clip_options_t options;
  EXPECT(dsc_clip_options_init(&options, sizeof options) == DSC_OK);
  options.max_norm = max_norm;
  options.scale = scale;
  return options;
}

static void clip(void) {
  double norm = 9;
  const uint8_t counted[2] = {1, 0};
  dsc_clip_options_t options = clip_to(1, 0.5);
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_clip(bad, &options, &norm, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_sharded_clip(S, &options, &norm, values));
  WALK_INVALID(dsc_sharded_clip(S, &options, NULL, NULL));
  const double wrong[][2] = {{0, 1}, {-1, 1},          {(double)NAN, 1},
                             {1, 0}, {1, (double)NAN}, {1, (double)INFINITY}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    options = clip_to(wrong[i][0], wrong[i][1]);
    WALK_INVALID(dsc_sharded_clip(S, &options, &norm, NULL));
  }
  options = clip_to(1, 1);
  options.counted = counted;
  WALK(DSC_ERR_UNSUPPORTED, dsc_sharded_clip(S, &options, &norm, NULL));
  options = clip_to(1, 1);
  options.norm = DSC_NORM_MAX;
  WALK(DSC_ERR_UNSUPPORTED, dsc_sharded_clip(S, &options, &norm, NULL));
  options = clip_to(1, 1);
  options.reserved = 1;
  WALK_INVALID(dsc_sharded_clip(S, &options, &norm, NULL));
  EXPECT(norm == 9);
  options = clip_to(1, 0.5);
  WALK(DSC_OK, dsc_sharded_clip(S, &options, &norm, NULL));
  EXPECT(norm == 0);
  WALK(DSC_OK, dsc_sharded_clip(S, NULL, &norm, NULL));
}

static void step_done(void) {
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_step_done(bad, 1, NULL));
  WALK_INVALID(dsc_sharded_step_done(S, 2, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_sharded_step_done(S, 1, values));
  WALK(DSC_OK, dsc_sharded_step_done(S, 1, NULL));
}

static void unshard(void) {
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_unshard(bad, 0));
  WALK_INVALID(dsc_sharded_unshard(S, 2));
  WALK(DSC_OK, dsc_sharded_unshard(S, 0));
  WALK(DSC_ERR_STATE, dsc_sharded_unshard(S, 0));
}

static void wait_for_unit(void) {
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_wait(bad, 0, NULL));
  WALK_INVALID(dsc_sharded_wait(S, 2, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_sharded_wait(S, 0, values));
  WALK(DSC_ERR_STATE, dsc_sharded_wait(S, 1, NULL));
  WALK(DSC_OK, dsc_sharded_wait(S, 0, NULL));
}

static void views(void) {
  void* view = values;
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_param_view(bad, 0, &view));
  WALK_INVALID(dsc_sharded_param_view(S, 2, &view));
  WALK_INVALID(dsc_sharded_param_view(S, 0, NULL));
  WALK(DSC_ERR_STATE, dsc_sharded_param_view(S, 1, &view));
  EXPECT(view == values);
  WALK(DSC_OK, dsc_sharded_param_view(S, 0, &view));
  EXPECT(view != NULL && view != values);
}

static void grad_views(void) {
  void* view = values;
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_grad_view(bad, 0, &view));
  WALK_INVALID(dsc_sharded_grad_view(S, 2, &view));
  WALK_INVALID(dsc_sharded_grad_view(S, 0, NULL));
  EXPECT(view == values);
  WALK(DSC_OK, dsc_sharded_grad_view(S, 1, &view));
  EXPECT(view != NULL && view != values);
}

static void reshard(void) {
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_reshard(bad, 0, NULL));
  WALK_INVALID(dsc_sharded_reshard(S, 2, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_sharded_reshard(S, 0, values));
  WALK(DSC_ERR_STATE, dsc_sharded_reshard(S, 1, NULL));
  WALK(DSC_OK, dsc_sharded_reshard(S, 0, NULL));
}

static void places(void) {
  size_t units[2] = {9, 9}, buckets[2] = {9, 9}, starts[2] = {9, 9}, n = 9, shard = 9, shards = 9;
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t,
                   dsc_sharded_locations(bad, units, buckets, starts, &n, &shard, &shards));
  WALK_INVALID(dsc_sharded_locations(S, NULL, buckets, starts, &n, &shard, &shards));
  WALK_INVALID(dsc_sharded_locations(S, units, NULL, starts, &n, &shard, &shards));
  WALK_INVALID(dsc_sharded_locations(S, units, buckets, NULL, &n, &shard, &shards));
  WALK_INVALID(dsc_sharded_locations(S, units, buckets, starts, NULL, &shard, &shards));
  WALK_INVALID(dsc_sharded_locations(S, units, buckets, starts, &n, NULL, &shards));
  WALK_INVALID(dsc_sharded_locations(S, units, buckets, starts, &n, &shard, NULL));
  EXPECT(units[0] == 9 && buckets[0] == 9 && starts[0] == 9 && n == 9 && shard == 9 && shards == 9);
  WALK(DSC_OK, dsc_sharded_locations(S, units, buckets, starts, &n, &shard, &shards));
  EXPECT(units[0] == 0 && units[1] == 1 && n == 2 && shard == 0 && shards == 1);
}

static void shards(void) {
  dsc_sharded_shard_t list[2] = {{.struct_size = 0}};
  size_t n = 9;
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_shards(bad, NULL, 0, &n));
  WALK_INVALID(dsc_sharded_shards(S, NULL, 2, &n));
  WALK_INVALID(dsc_sharded_shards(S, list, 2, &n));
  WALK_INVALID(dsc_sharded_shards(S, NULL, 0, NULL));
  EXPECT(n == 9);
  list[0].struct_size = sizeof *list;
  WALK(DSC_OK, dsc_sharded_shards(S, list, 2, &n));
  EXPECT(n == 2 && list[1].bucket == 1 && list[1].count == 16 && list[1].params != NULL);
  WALK(DSC_TRUNCATED, dsc_sharded_shards(S, list, 1, &n));
}

static void ranges(void) {
  dsc_sharded_range_t list[2] = {{.struct_size = 0}};
  size_t n = 9;
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_ranges(bad, NULL, 0, &n));
  WALK_INVALID(dsc_sharded_ranges(S, NULL, 2, &n));
  WALK_INVALID(dsc_sharded_ranges(S, list, 2, &n));
  WALK_INVALID(dsc_sharded_ranges(S, NULL, 0, NULL));
  EXPECT(n == 9);
  list[0].struct_size = sizeof *list;
  WALK(DSC_OK, dsc_sharded_ranges(S, list, 2, &n));
  EXPECT(n == 2 && list[1].param == 1 && list[1].count == 8 && list[1].param_start == 0);
}

static void memory(void) {
  dsc_sharded_memory_info_t held = {.struct_size = sizeof held};
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_memory_info(bad, &held));
  WALK_INVALID(dsc_sharded_memory_info(S, NULL));
  held.struct_size = 8;
  WALK_INVALID(dsc_sharded_memory_info(S, &held));
  held.struct_size = sizeof held;
  WALK(DSC_OK, dsc_sharded_memory_info(S, &held));
  EXPECT(held.param_shard_bytes > 0 && held.grad_bytes > 0 && held.peak_grad_bytes > 0);
}

static void stats(void) {
  dsc_op_stats_t totals = {.struct_size = 0};
  size_t n = 99;
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_stats(bad, NULL, 0, &n));
  WALK_INVALID(dsc_sharded_stats(S, NULL, 1, &n));
  WALK_INVALID(dsc_sharded_stats(S, &totals, 1, &n));
  WALK_INVALID(dsc_sharded_stats(S, NULL, 0, NULL));
  EXPECT(n == 99);
  WALK(DSC_OK, dsc_sharded_stats(S, NULL, 0, &n));
}

/* Shards stay valid. Afterwards every call on the object except destroy is refused. */
static void close_sharded(void) {
  dsc_sharded_shard_t list[2] = {{.struct_size = sizeof *list}};
  size_t n = 9;
  WALK(DSC_OK, dsc_sharded_shards(S, list, 2, &n));
  WALK_BAD_HANDLES(WALK_SHARDED, dsc_sharded_t, dsc_sharded_close(bad));
  WALK(DSC_OK, dsc_sharded_close(S));
  WALK(DSC_OK, dsc_sharded_close(S));
  memset(list[1].params, 1, list[1].count * sizeof(float));
  WALK(DSC_ERR_STATE, dsc_sharded_begin(S, 0, NULL));
  EXPECT(strstr(dsc_last_error_message(), "the sharded parameters are closed") != NULL);
  WALK(DSC_ERR_STATE, dsc_sharded_mark_unused(S, 0));
  WALK(DSC_ERR_STATE, dsc_sharded_unshard(S, 0));
  WALK(DSC_ERR_STATE, dsc_sharded_shards(S, list, 2, &n));
}

static void destroy(void) {
  WALK(DSC_OK, dsc_sharded_destroy(NULL));
  WALK_BAD_HANDLES_BUT_NULL(WALK_SHARDED, dsc_sharded_t, dsc_sharded_destroy(bad));
  WALK(DSC_OK, dsc_sharded_destroy(S));
  WALK(DSC_ERR_BAD_HANDLE, dsc_sharded_destroy(S));
}

const walk_step_t walk_sharded[] = {
    {"dsc_shard_plan_options_init", plan_options_init},
    {"dsc_shard_plan", plan},
    {"dsc_shard_copies", copies},
    {"dsc_sharded_options_init", options_init},
    {"dsc_sharded_create", create},
    {"dsc_sharded_begin", begin},
    {"dsc_sharded_accumulate", accumulate},
    {"dsc_sharded_mark_ready", mark_ready},
    {"dsc_sharded_mark_unused", mark_unused},
    {"dsc_sharded_finish", finish},
    {"dsc_sharded_clip", clip},
    {"dsc_sharded_step_done", step_done},
    {"dsc_sharded_unshard", unshard},
    {"dsc_sharded_wait", wait_for_unit},
    {"dsc_sharded_param_view", views},
    {"dsc_sharded_grad_view", grad_views},
    {"dsc_sharded_reshard", reshard},
    {"dsc_sharded_locations", places},
    {"dsc_sharded_shards", shards},
    {"dsc_sharded_ranges", ranges},
    {"dsc_sharded_memory_info", memory},
    {"dsc_sharded_stats", stats},
    {"dsc_sharded_close", close_sharded},
    {"dsc_sharded_destroy", destroy},
    {NULL, NULL},
};
