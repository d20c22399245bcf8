/* Start-up and finalize, on a thread that is already a rank. */
#include <stdint.h>

#include "capi_walk.h"

static void init_options_init(void) {
  struct {
    dsc_init_options_t known;
    uint64_t later[2];
  } options;
  memset(&options, 0x77, sizeof options);
  WALK_INVALID(dsc_init_options_init(NULL, sizeof options.known));
  WALK_INVALID(dsc_init_options_init(&options.known, 0));
  WALK_INVALID(dsc_init_options_init(&options.known, sizeof options.known - 1));
  EXPECT(options.known.rank == 0x77777777 && options.later[0] == 0x7777777777777777u);
  WALK(DSC_OK, dsc_init_options_init(&options.known, sizeof options));
  EXPECT(options.known.struct_size == sizeof options && options.later[0] == 0 && options.later[1] == 0);
  EXPECT(options.known.rank == -1 && options.known.world_size == -1 && options.known.timeout_ms == 300000);
  EXPECT(options.known.settings == NULL && options.known.n_settings == 0);
}

/* Options that have one wrong value each. No rank joins a world here. */
static void init_distributed(void) {
  static const struct {
    size_t offset;
    int32_t value;
    dsc_result_t expected;
  } wrong[] = {
      {offsetof(dsc_init_options_t, backend), -1, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, backend), 4, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, rank), -2, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, world_size), 0, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, world_size), -2, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, local_rank), -2, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, device), -2, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, port), -1, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, port), 65536, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, sources), 32, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, require_existing), 2, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, rank_per_thread), -1, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, init_timeout_ms), 0, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, timeout_ms), 0, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, timeout_ms), INT32_MIN, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, stall_timeout_ms), -1, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, progress_thread), 2, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, progress_thread), -1, DSC_ERR_INVALID_ARG},
      {offsetof(dsc_init_options_t, reserved), 1, DSC_ERR_INVALID_ARG},
  };
  dsc_init_options_t options;
  dsc_comm_t* world = NULL;
  WALK_INVALID(dsc_init_distributed(NULL, NULL));
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    WALK(DSC_OK, dsc_init_options_init(&options, sizeof options));
    options.rank_per_thread = 1;
    memcpy((char*)&options + wrong[i].offset, &wrong[i].value, sizeof wrong[i].value);
    world = walk_world.world;
    WALK(wrong[i].expected, dsc_init_distributed(&options, &world));
    EXPECT(world == NULL);
  }
  static const dsc_setting_t settings[] = {
      {"nccl.library", ""}, {"cuda.library", ""}, {"library", "x"}, {NULL, "x"}};
  for (size_t i = 0; i < sizeof settings / sizeof *settings; ++i) {
    WALK(DSC_OK, dsc_init_options_init(&options, sizeof options));
    options.rank_per_thread = 1;
    options.settings = &settings[i];
    options.n_settings = 1;
    WALK_INVALID(dsc_init_distributed(&options, &world));
  }
  WALK(DSC_OK, dsc_init_options_init(&options, sizeof options));
  options.rank_per_thread = 1;
  WALK(DSC_ERR_STATE, dsc_init_distributed(&options, &world)); /* this thread is already a rank */
  options.struct_size = 8;
  WALK_INVALID(dsc_init_distributed(&options, &world));
}

static void launch_report(void) {
  char text[1 << 15] = "untouched";
  size_t bytes = 0;
  dsc_init_options_t options;
  WALK(DSC_OK, dsc_init_options_init(&options, sizeof options));
  WALK_INVALID(dsc_launch_json(&options, text, sizeof text, NULL));
  WALK_INVALID(dsc_launch_json(&options, NULL, 1, &bytes));
  options.rank = -2;
  WALK_INVALID(dsc_launch_json(&options, text, sizeof text, &bytes));
  options.rank = 1; /* without a world size: the answer includes the error that init would give */
  WALK(DSC_TRUNCATED, dsc_launch_json(&options, text, 9, &bytes));
  EXPECT(strlen(text) == 8 && bytes > 9 && bytes <= sizeof text);
  WALK(DSC_OK, dsc_launch_json(&options, text, bytes, &bytes));
  EXPECT(strstr(text, "DSC_ERR_CONFIG") != NULL && strstr(text, "rank is given without") != NULL);
  options.world_size = 2;
  WALK(DSC_OK, dsc_launch_json(&options, text, sizeof text, &bytes));
  EXPECT(strstr(text, "\"error\":null") != NULL && strstr(text, "\"rank\":1") != NULL);
  options.struct_size = 8;
  WALK_INVALID(dsc_launch_json(&options, text, sizeof text, &bytes));
}

static void world(void) {
  dsc_comm_t* came = NULL;
  WALK_INVALID(dsc_world(NULL));
  WALK(DSC_OK, dsc_world(&came));
  EXPECT(came == walk_world.world);
}

static void is_initialized(void) {
  int32_t initialized = 99;
  WALK_INVALID(dsc_is_initialized(NULL));
  WALK(DSC_OK, dsc_is_initialized(&initialized));
  EXPECT(initialized == 1);
}

/* dsc_finalize() has no argument that could be wrong, so it is not called here. The tests of start-up
 * check its result without a world. */
static void finalize(void) {
  int32_t initialized = 0;
  WALK(DSC_OK, dsc_is_initialized(&initialized));
  EXPECT(initialized == 1); /* the end of the walk calls finalize */
}

const walk_step_t walk_init[] = {
    {"dsc_init_options_init", init_options_init},
    {"dsc_init_distributed", init_distributed},
    {"dsc_launch_json", launch_report},
    {"dsc_world", world},
    {"dsc_is_initialized", is_initialized},
    {"dsc_finalize", finalize},
    {NULL, NULL},
};
