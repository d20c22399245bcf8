/* Functions that need no world: names, versions, plans, the log. */
#include <stddef.h>
#include <stdint.h>

#include "capi_walk.h"

static void result_name(void) {
  EXPECT(strcmp(dsc_result_name(DSC_OK), "DSC_OK") == 0);
  EXPECT(strcmp(dsc_result_name(DSC_IN_PROGRESS), "DSC_IN_PROGRESS") == 0);
  EXPECT(strcmp(dsc_result_name(DSC_DONE), "DSC_DONE") == 0);
  EXPECT(strcmp(dsc_result_name(DSC_TRUNCATED), "DSC_TRUNCATED") == 0);
  EXPECT(strcmp(dsc_result_name(DSC_ERR_MISMATCH), "DSC_ERR_MISMATCH") == 0);
  EXPECT(strcmp(dsc_result_name(DSC_ERR_INTERNAL), "DSC_ERR_INTERNAL") == 0);
  const dsc_result_t unknown[] = {4, INT32_MAX, DSC_ERR_INTERNAL - 1, INT32_MIN};
  for (size_t i = 0; i < 4; ++i) EXPECT(strcmp(dsc_result_name(unknown[i]), "DSC_UNKNOWN_RESULT") == 0);
}

static void last_error_message(void) {
  WALK_INVALID(dsc_feature(NULL, NULL));
  EXPECT(strncmp(dsc_last_error_message(), "dsc_feature: ", 13) == 0);
  int32_t size = 0;
  WALK(DSC_OK, dsc_comm_size(walk_world.world, &size)); /* a successful call does not clear the last error */
  EXPECT(strncmp(dsc_last_error_message(), "dsc_feature: ", 13) == 0);
}

static void last_error_info(void) {
  dsc_error_info_t info = {.struct_size = sizeof info};
  WALK_INVALID(dsc_feature(NULL, NULL));
  WALK(DSC_OK, dsc_last_error_info(&info));
  EXPECT(info.code == DSC_ERR_INVALID_ARG && info.rank == -1 && info.n_ranks == 0 && info.index == 0);
  EXPECT(strcmp(info.text, strstr(dsc_last_error_message(), ": ") + 2) == 0);
  EXPECT(info.operation[0] == 0 && info.sequence == 0 && info.revoked == 0);
  WALK_INVALID(dsc_last_error_info(NULL));
  info.struct_size = sizeof info - 1;
  WALK_INVALID(dsc_last_error_info(&info));
  EXPECT(info.code == DSC_ERR_INVALID_ARG);
}

static void dtype_name(void) {
  static const char* const names[] = {"unknown", "i8",  "u8",  "i32",  "u32",    "i64",    "u64",
                                      "f16",     "f32", "f64", "bf16", "f8e4m3", "f8e5m2", "bool"};
  for (dsc_dtype_t dtype = 0; dtype <= DSC_DTYPE_BOOL; ++dtype)
    EXPECT(strcmp(dsc_dtype_name(dtype), names[dtype]) == 0);
  EXPECT(strcmp(dsc_dtype_name(14), "unknown") == 0);
  EXPECT(strcmp(dsc_dtype_name(INT32_MIN), "unknown") == 0);
}

static void dtype_bytes(void) {
  static const size_t expected[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1, 1};
  size_t bytes = 99;
  for (dsc_dtype_t dtype = 1; dtype <= DSC_DTYPE_BOOL; ++dtype) {
    WALK(DSC_OK, dsc_dtype_bytes(dtype, &bytes));
    EXPECT(bytes == expected[dtype - 1]);
  }
  bytes = 99;
  WALK_INVALID(dsc_dtype_bytes(0, &bytes));
  WALK_INVALID(dsc_dtype_bytes(14, &bytes));
  WALK_INVALID(dsc_dtype_bytes(INT32_MIN, &bytes));
  WALK_INVALID(dsc_dtype_bytes(DSC_DTYPE_F32, NULL));
  EXPECT(bytes == 99);
}

static void op_name(void) {
  EXPECT(strcmp(dsc_op_name(DSC_OP_SUM), "sum") == 0);
  EXPECT(strcmp(dsc_op_name(DSC_OP_BXOR), "bxor") == 0);
  EXPECT(strcmp(dsc_op_name(0), "unknown") == 0);
  EXPECT(strcmp(dsc_op_name(9), "unknown") == 0);
  EXPECT(strcmp(dsc_op_name(INT32_MIN), "unknown") == 0);
}

static void version(void) {
  int32_t major = -1, minor = -1, patch = -1;
  WALK(DSC_OK, dsc_version(NULL, NULL, NULL));
  WALK(DSC_OK, dsc_version(&major, &minor, &patch));
  EXPECT(major == DSC_VERSION_MAJOR && minor == DSC_VERSION_MINOR && patch == DSC_VERSION_PATCH);
}

static void feature(void) {
  int32_t available = 99;
  WALK_INVALID(dsc_feature(NULL, &available));
  WALK_INVALID(dsc_feature("host", NULL));
  WALK_INVALID(dsc_feature("", &available));
  WALK_INVALID(dsc_feature("steam", &available));
  EXPECT(strstr(dsc_last_error_message(), "gloo") != NULL);
  EXPECT(available == 99);
  WALK(DSC_OK, dsc_feature("host", &available));
  EXPECT(available == 1);
}

static void ignore(void* context, const dsc_log_record_t* record) {
  (void)context;
  (void)record;
}

static void log_set_callback(void) {
  WALK_INVALID(dsc_log_set_callback(ignore, NULL, -1));
  WALK_INVALID(dsc_log_set_callback(ignore, NULL, 5));
  WALK_INVALID(dsc_log_set_callback(NULL, NULL, INT32_MIN));
  WALK(DSC_OK, dsc_log_set_callback(ignore, NULL, DSC_LOG_LEVEL_ERROR));
  WALK(DSC_OK, dsc_log_set_callback(NULL, NULL, DSC_LOG_LEVEL_OFF));
}

static void log_read(void) {
  char message[8] = "before";
  size_t bytes = 99;
  int32_t level = 99;
  WALK_INVALID(dsc_log_read(-1, message, sizeof message, &bytes, &level));
  WALK_INVALID(dsc_log_read(5, message, sizeof message, &bytes, &level));
  WALK_INVALID(dsc_log_read(DSC_LOG_LEVEL_OFF, NULL, 8, &bytes, &level));
  WALK_INVALID(dsc_log_read(DSC_LOG_LEVEL_OFF, message, 1, &bytes, &level));
  /* a buffer of 0 bytes does not remove a record */
  WALK_INVALID(dsc_log_read(DSC_LOG_LEVEL_OFF, NULL, 0, &bytes, &level));
  WALK_INVALID(dsc_log_read(DSC_LOG_LEVEL_OFF, message, sizeof message, NULL, &level));
  WALK_INVALID(dsc_log_read(DSC_LOG_LEVEL_OFF, message, sizeof message, &bytes, NULL));
  EXPECT(strcmp(message, "before") == 0 && bytes == 99);
  WALK(DSC_DONE, dsc_log_read(DSC_LOG_LEVEL_OFF, message, sizeof message, &bytes, &level));
  EXPECT(message[0] == 0 && bytes == 1);
}

static void tensor_init(void) {
  dsc_tensor_t tensor = {.count = 5};
  WALK_INVALID(dsc_tensor_init(NULL, sizeof tensor));
  WALK_INVALID(dsc_tensor_init(&tensor, 4));
  EXPECT(tensor.count == 5);
  WALK(DSC_OK, dsc_tensor_init(&tensor, sizeof tensor));
  EXPECT(tensor.struct_size == sizeof tensor && tensor.device == -1 && tensor.count == 0 && !tensor.data);
  int32_t elements[2] = {0};
  const dsc_tensor_t made = dsc_tensor_on_host(elements, 2, DSC_DTYPE_I32);
  tensor.data = elements;
  tensor.count = 2;
  tensor.dtype = DSC_DTYPE_I32;
  EXPECT(memcmp(&made, &tensor, sizeof made) == 0);
}

static void bucket_plan(void) {
  const size_t counts[] = {100, 10}, huge[] = {SIZE_MAX / 2, 1}, limits[] = {400}, twice[] = {1, 1},
               off[] = {0, 2};
  const dsc_dtype_t dtypes[] = {DSC_DTYPE_F32, DSC_DTYPE_F32}, wrong[] = {DSC_DTYPE_F32, 14};
  const uint8_t sparse[] = {0, 2};
  size_t indices[2] = {9, 9}, starts[3] = {9, 9, 9}, used[2] = {9, 9}, n = 9;
  dsc_bucket_plan_options_t o;
  WALK_INVALID(dsc_bucket_plan_options_init(NULL, sizeof o));
  WALK_INVALID(dsc_bucket_plan_options_init(&o, 4));
  WALK(DSC_OK, dsc_bucket_plan_options_init(&o, sizeof o));
  o.limits = limits, o.n_limits = 1;
  WALK_INVALID(dsc_bucket_plan(NULL, dtypes, 2, &o, indices, starts, used, &n));
  WALK_INVALID(dsc_bucket_plan(counts, NULL, 2, &o, indices, starts, used, &n));
  WALK_INVALID(dsc_bucket_plan(counts, dtypes, 0, &o, indices, starts, used, &n));
  WALK_INVALID(dsc_bucket_plan(counts, dtypes, 2, &o, NULL, starts, used, &n));
  WALK_INVALID(dsc_bucket_plan(counts, dtypes, 2, &o, indices, NULL, used, &n));
  WALK_INVALID(dsc_bucket_plan(counts, dtypes, 2, &o, indices, starts, used, NULL));
  WALK_INVALID(dsc_bucket_plan(counts, wrong, 2, &o, indices, starts, used, &n));
  WALK(DSC_ERR_OVERFLOW, dsc_bucket_plan(huge, dtypes, 2, &o, indices, starts, used, &n));
  dsc_bucket_plan_options_t wrong_options[] = {o, o, o, o, o, o};
  wrong_options[0].limits = NULL;
  wrong_options[1].n_limits = 0;
  wrong_options[2].expect_sparse = sparse;
  wrong_options[3].order = twice;
  wrong_options[4].order = off;
  wrong_options[5].struct_size = 4;
  for (size_t i = 0; i < 6; ++i)
    WALK_INVALID(dsc_bucket_plan(counts, dtypes, 2, &wrong_options[i], indices, starts, used, &n));
  EXPECT(indices[0] == 9 && indices[1] == 9 && starts[0] == 9 && starts[2] == 9 && used[0] == 9 && n == 9);
  WALK(DSC_OK, dsc_bucket_plan(counts, dtypes, 2, NULL, indices, starts, used, &n));
  EXPECT(n == 1 && used[0] == 1 << 20);
  WALK(DSC_OK, dsc_bucket_plan(counts, dtypes, 2, &o, indices, starts, NULL, &n));
  EXPECT(n == 2 && indices[0] == 0 && indices[1] == 1 && starts[2] == 2);
}

static void shard_indices(void) {
  size_t indices[4] = {9, 9, 9, 9}, n = 9;
  WALK_INVALID(dsc_sampler_indices(0, 2, 0, 0, 0, 0, indices, 4, &n));
  WALK_INVALID(dsc_sampler_indices(7, 0, 0, 0, 0, 0, indices, 4, &n));
  WALK_INVALID(dsc_sampler_indices(7, 2, 2, 0, 0, 0, indices, 4, &n));
  WALK_INVALID(dsc_sampler_indices(7, 2, 0, 2, 0, 0, indices, 4, &n));
  WALK_INVALID(dsc_sampler_indices(7, 2, 0, 0, 0, -1, indices, 4, &n));
  WALK_INVALID(dsc_sampler_indices(7, 2, 0, 0, 0, 0, NULL, 4, &n));
  WALK_INVALID(dsc_sampler_indices(7, 2, 0, 0, 0, 0, indices, 4, NULL));
  WALK(DSC_ERR_OVERFLOW, dsc_sampler_indices(SIZE_MAX, 2, 0, 0, 0, 0, NULL, 0, &n));
  EXPECT(indices[0] == 9 && indices[3] == 9 && n == 9);
  WALK(DSC_TRUNCATED, dsc_sampler_indices(7, 2, 1, 0, 0, 0, indices, 2, &n));
  EXPECT(n == 4 && indices[1] == 3 && indices[2] == 9);
  WALK(DSC_OK, dsc_sampler_indices(7, 2, 1, 0, 0, 0, indices, 4, &n));
  EXPECT(n == 4 && indices[0] == 1 && indices[2] == 5 && indices[3] == 0);
}

static void split_range(void) {
  size_t begin = 9, length = 9;
  WALK_INVALID(dsc_tensor_map_part(7, 0, 0, &begin, &length));
  WALK_INVALID(dsc_tensor_map_part(7, 2, 2, &begin, &length));
  WALK_INVALID(dsc_tensor_map_part(7, 2, 0, NULL, &length));
  WALK_INVALID(dsc_tensor_map_part(7, 2, 0, &begin, NULL));
  EXPECT(begin == 9 && length == 9);
  WALK(DSC_OK, dsc_tensor_map_part(7, 2, 1, &begin, &length));
  EXPECT(begin == 4 && length == 3);
  WALK(DSC_OK, dsc_tensor_map_part(SIZE_MAX, 2, 1, &begin, &length));
  EXPECT(begin == SIZE_MAX / 2 + 1 && length == SIZE_MAX / 2);
}

static void pipe_partition_options_init(void) {
  dsc_pipe_partition_options_t options;
  WALK_INVALID(dsc_pipe_partition_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_pipe_partition_options_init(&options, 8));
  WALK(DSC_OK, dsc_pipe_partition_options_init(&options, sizeof options));
  EXPECT(options.struct_size == sizeof options && options.method == NULL && options.layer_bytes == NULL);
  EXPECT(options.part_limits == NULL && options.n_part_limits == 0);
}

static void pipe_partition(void) {
  const double weights[] = {1, 2, 3}, wrong[] = {1, -2, 3}, huge[] = {1e308, 1e308, 3};
  const uint64_t limits[] = {5, 5, 5}, overflow[] = {UINT64_MAX, 5, 5};
  dsc_pipe_partition_options_t options;
  size_t found[4] = {9, 9, 9, 9};
  WALK(DSC_OK, dsc_pipe_partition_options_init(&options, sizeof options));
  WALK_INVALID(dsc_pipe_partition(NULL, 3, 2, NULL, found));
  WALK_INVALID(dsc_pipe_partition(weights, 3, 2, NULL, NULL));
  WALK_INVALID(dsc_pipe_partition(weights, 3, 0, NULL, found));
  WALK_INVALID(dsc_pipe_partition(weights, 3, (size_t)1 << 31, NULL, found));
  WALK_INVALID(dsc_pipe_partition(weights, 1, 2, NULL, found));
  WALK_INVALID(dsc_pipe_partition(wrong, 3, 2, NULL, found));
  WALK(DSC_ERR_OVERFLOW, dsc_pipe_partition(huge, 3, 2, NULL, found));
  WALK(DSC_ERR_OVERFLOW, dsc_pipe_partition(weights, SIZE_MAX / 64, 2, NULL, found));
  options.method = "bottle";
  WALK_INVALID(dsc_pipe_partition(weights, 3, 2, &options, found));
  options.method = NULL;
  options.part_limits = limits;
  WALK_INVALID(dsc_pipe_partition(weights, 3, 2, &options, found)); /* n_part_limits is 0 */
  options.n_part_limits = 3;
  WALK_INVALID(dsc_pipe_partition(weights, 3, 3, &options, found)); /* layer_bytes is missing */
  options.layer_bytes = limits;
  WALK_INVALID(dsc_pipe_partition(weights, 3, 2, &options, found)); /* 3 limits for 2 parts */
  options.n_part_limits = 1;
  WALK_INVALID(dsc_pipe_partition(weights, 3, 2, &options, found)); /* the limits are too small */
  options.layer_bytes = overflow;
  WALK(DSC_ERR_OVERFLOW, dsc_pipe_partition(weights, 3, 2, &options, found));
  options.layer_bytes = limits;
  options.struct_size = 8;
  WALK_INVALID(dsc_pipe_partition(weights, 3, 3, &options, found));
  options.struct_size = sizeof options;
  EXPECT(found[0] == 9 && found[1] == 9 && found[2] == 9 && found[3] == 9);
  WALK(DSC_OK, dsc_pipe_partition(weights, 3, 3, &options, found));
  WALK(DSC_OK, dsc_pipe_partition(weights, 3, 2, NULL, found));
  EXPECT(found[0] == 0 && found[1] == 2 && found[2] == 3);
}

static void seed_layer(void) {
  uint64_t seed = 9;
  WALK_INVALID(dsc_rng_layer_seed(0, 0, NULL, NULL));
  WALK_INVALID(dsc_rng_layer_seed(0, 0, "Deepspeed", &seed));
  WALK_INVALID(dsc_rng_layer_seed(0, 0, "", &seed));
  WALK(DSC_ERR_OVERFLOW, dsc_rng_layer_seed(UINT64_MAX, 1, "deepspeed", &seed));
  EXPECT(seed == 9);
  WALK(DSC_OK, dsc_rng_layer_seed(0, 0, NULL, &seed));
  EXPECT(seed == 0xa706dd2f4d197e6fu);
  WALK(DSC_OK, dsc_rng_layer_seed(UINT64_MAX, UINT64_MAX, "split_mix", &seed));
  EXPECT(seed == 0x445018e305810b78u);
  WALK(DSC_OK, dsc_rng_layer_seed(UINT64_MAX - 1, 1, "deepspeed", &seed));
  EXPECT(seed == UINT64_MAX);
}

static void seed_region(void) {
  uint64_t seed = 9;
  WALK_INVALID(dsc_rng_region_seed(1, 0, 0, 0, 0, &seed));
  WALK_INVALID(dsc_rng_region_seed(1, 4, 0, 0, 0, &seed));
  WALK_INVALID(dsc_rng_region_seed(1, DSC_RNG_REGION_DATA, -1, 0, 0, &seed));
  WALK_INVALID(dsc_rng_region_seed(1, DSC_RNG_REGION_DATA, 0, INT32_MIN, 0, &seed));
  WALK_INVALID(dsc_rng_region_seed(1, DSC_RNG_REGION_DATA, 0, 0, -1, &seed));
  WALK_INVALID(dsc_rng_region_seed(1, DSC_RNG_REGION_DATA, 0, 0, 0, NULL));
  WALK(DSC_ERR_OVERFLOW, dsc_rng_region_seed(UINT64_MAX, DSC_RNG_REGION_EXPERT, 0, 0, 0, &seed));
  EXPECT(seed == 9);
  WALK(DSC_OK, dsc_rng_region_seed(1, DSC_RNG_REGION_TENSOR, 1, 0, 0, &seed));
  EXPECT(seed == 2720);
}

static void engine_report(void) {
  char text[4096] = "untouched", second[4096];
  size_t bytes = 0, again = 0;
  WALK_INVALID(dsc_engines_json(text, sizeof text, NULL));
  WALK_INVALID(dsc_engines_json(NULL, 1, &bytes));
  EXPECT(bytes == 0);
  WALK(DSC_OK, dsc_engines_json(NULL, 0, &bytes));
  WALK(DSC_TRUNCATED, dsc_engines_json(text, bytes - 1, &again));
  EXPECT(strlen(text) == bytes - 2 && again == bytes && bytes <= sizeof second);
  WALK(DSC_OK, dsc_engines_json(second, bytes, &bytes));
  EXPECT(strstr(second, "\"host\":{\"available\":true") != NULL && strlen(second) + 1 == bytes);
}

const walk_step_t walk_pure[] = {
    {"dsc_result_name", result_name},
    {"dsc_last_error_message", last_error_message},
    {"dsc_last_error_info", last_error_info},
    {"dsc_dtype_name", dtype_name},
    {"dsc_dtype_bytes", dtype_bytes},
    {"dsc_op_name", op_name},
    {"dsc_version", version},
    {"dsc_feature", feature},
    {"dsc_engines_json", engine_report},
    {"dsc_log_set_callback", log_set_callback},
    {"dsc_log_read", log_read},
    {"dsc_tensor_init", tensor_init},
    {"dsc_bucket_plan", bucket_plan},
    {"dsc_bucket_plan_options_init", bucket_plan},
    {"dsc_sampler_indices", shard_indices},
    {"dsc_tensor_map_part", split_range},
    {"dsc_pipe_partition_options_init", pipe_partition_options_init},
    {"dsc_pipe_partition", pipe_partition},
    {"dsc_rng_layer_seed", seed_layer},
    {"dsc_rng_region_seed", seed_region},
    {NULL, NULL},
};
