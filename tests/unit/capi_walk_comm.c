/* Communicators: queries, groups, settings, closing. */
#include <stddef.h>
#include <stdint.h>

#include "capi_walk.h"

/* Queries that return one number. */
#define QUERY(function, expected)                                              \
  static void query_##function(void) {                                         \
    int32_t value = 99;                                                        \
    WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_##function(bad, &value)); \
    WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_##function(bad, NULL));   \
    WALK_INVALID(dsc_comm_##function(walk_world.world, NULL));                 \
    EXPECT(value == 99);                                                       \
    WALK(DSC_OK, dsc_comm_##function(walk_world.world, &value));               \
    EXPECT(value == (expected));                                               \
  }

QUERY(rank, 0)
QUERY(size, 2)
QUERY(local_rank, 0)
QUERY(local_size, 2)
QUERY(backend, DSC_BACKEND_HOST)
QUERY(device, -1)

QUERY(world_size, 2)
QUERY(progress_thread, 1)

static void master_port(void) {
  int32_t port = -1;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_master_port(bad, &port));
  WALK_INVALID(dsc_comm_master_port(walk_world.world, NULL));
  EXPECT(port == -1);
  WALK(DSC_OK, dsc_comm_master_port(walk_world.world, &port));
  EXPECT(port >= 0);
}

static void id(void) {
  uint64_t world = 99, alone = 99;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_id(bad, &world));
  WALK_INVALID(dsc_comm_id(walk_world.world, NULL));
  EXPECT(world == 99);
  WALK(DSC_OK, dsc_comm_id(walk_world.world, &world));
  WALK(DSC_OK, dsc_comm_id(walk_world.alone, &alone));
  EXPECT(world == 0 && alone != 0 && alone != 99);
}

static void name(void) {
  char text[32] = "before";
  size_t bytes = 99;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_name(bad, text, sizeof text, &bytes));
  WALK_INVALID(dsc_comm_name(walk_world.world, text, sizeof text, NULL));
  WALK_INVALID(dsc_comm_name(walk_world.world, NULL, sizeof text, &bytes));
  EXPECT(strcmp(text, "before") == 0);
  WALK(DSC_OK, dsc_comm_name(walk_world.world, NULL, 0, &bytes));
  EXPECT(bytes == 6);
  WALK(DSC_TRUNCATED, dsc_comm_name(walk_world.world, text, 5, &bytes));
  EXPECT(strcmp(text, "worl") == 0 && bytes == 6);
  WALK(DSC_TRUNCATED, dsc_comm_name(walk_world.world, text, 1, &bytes));
  EXPECT(text[0] == 0 && text[1] == 'o' && bytes == 6);
  WALK(DSC_OK, dsc_comm_name(walk_world.world, text, 6, &bytes));
  EXPECT(strcmp(text, "world") == 0);
}

/* Queries that return a text of any length. */
#define TEXT_QUERY(function)                                                                      \
  static void query_##function(void) {                                                            \
    char text[8192] = "before";                                                                   \
    size_t bytes = 99;                                                                            \
    WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_##function(bad, text, sizeof text, &bytes)); \
    WALK_INVALID(dsc_comm_##function(walk_world.world, text, sizeof text, NULL));                 \
    WALK_INVALID(dsc_comm_##function(walk_world.world, NULL, sizeof text, &bytes));               \
    EXPECT(strcmp(text, "before") == 0);                                                          \
    WALK(DSC_OK, dsc_comm_##function(walk_world.world, text, sizeof text, &bytes));               \
    EXPECT(bytes > 1 && bytes == strlen(text) + 1);                                               \
    WALK(DSC_TRUNCATED, dsc_comm_##function(walk_world.world, text, 1, &bytes));                  \
    EXPECT(text[0] == 0);                                                                         \
  }

TEXT_QUERY(master_addr)
TEXT_QUERY(source)
TEXT_QUERY(start_summary)
TEXT_QUERY(tuning)

static void global_rank(void) {
  int32_t rank = 99;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_global_rank(bad, 0, &rank));
  WALK_INVALID(dsc_comm_global_rank(walk_world.world, -1, &rank));
  WALK_INVALID(dsc_comm_global_rank(walk_world.world, 2, &rank));
  WALK_INVALID(dsc_comm_global_rank(walk_world.world, 0, NULL));
  EXPECT(rank == 99);
  WALK(DSC_OK, dsc_comm_global_rank(walk_world.world, 1, &rank));
  EXPECT(rank == 1);
}

static void group_rank(void) {
  int32_t rank = 99;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_group_rank(bad, 0, &rank));
  WALK_INVALID(dsc_comm_group_rank(walk_world.world, -1, &rank));
  WALK_INVALID(dsc_comm_group_rank(walk_world.world, 2, &rank));
  WALK_INVALID(dsc_comm_group_rank(walk_world.world, 0, NULL));
  EXPECT(rank == 99);
  WALK(DSC_OK, dsc_comm_group_rank(walk_world.world, 1, &rank));
  EXPECT(rank == 1);
}

static void group_options_init(void) {
  dsc_comm_options_t options;
  memset(&options, 0x77, sizeof options);
  WALK_INVALID(dsc_comm_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_comm_options_init(&options, sizeof options - 1));
  EXPECT(options.timeout_ms == 0x77777777);
  WALK(DSC_OK, dsc_comm_options_init(&options, sizeof options));
  EXPECT(options.name == NULL && options.timeout_ms == 0 && options.n_settings == 0);
}

enum { WRONG_OPTIONS = 9 };

/* Options that have one wrong field each, tried with every function that makes a group. */
static void wrong_group_options(dsc_comm_options_t options[WRONG_OPTIONS]) {
  for (int i = 0; i < WRONG_OPTIONS; ++i) WALK(DSC_OK, dsc_comm_options_init(&options[i], sizeof *options));
  options[0].struct_size = 0;
  options[1].timeout_ms = -1;
  options[2].n_settings = 1;
  options[3].struct_size = sizeof *options - 1;
  static const dsc_setting_t negative = {"nccl.min_ctas", "-1"}, unknown = {"nccl.mintas", "1"},
                             nothing = {"nccl.min_ctas", NULL}, word = {"nccl.max_ctas", "2x"},
                             turned[] = {{"nccl.min_ctas", "3"}, {"nccl.max_ctas", "2"}};
  const dsc_setting_t* const wrong[] = {&negative, &unknown, &nothing, &word, turned};
  for (int i = 0; i < 5; ++i) {
    options[4 + i].settings = wrong[i];
    options[4 + i].n_settings = wrong[i] == turned ? 2 : 1;
  }
}

static void split(void) {
  dsc_comm_t* group = walk_world.world;
  dsc_comm_options_t options[WRONG_OPTIONS];
  wrong_group_options(options);
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_split(bad, 0, 0, NULL, &group));
  EXPECT(group == NULL);
  WALK_INVALID(dsc_comm_split(walk_world.world, 0, 0, NULL, NULL));
  WALK_INVALID(dsc_comm_split(walk_world.world, -2, 0, NULL, &group));
  WALK_INVALID(dsc_comm_split(walk_world.world, INT32_MIN, 0, NULL, &group));
  for (int i = 0; i < WRONG_OPTIONS; ++i)
    WALK_INVALID(dsc_comm_split(walk_world.world, 0, 0, &options[i], &group));
  EXPECT(group == NULL);
}

static void adopt(void) {
  dsc_comm_t* group = walk_world.world;
  dsc_comm_options_t options[WRONG_OPTIONS];
  wrong_group_options(options);
  int some = 0;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_adopt(bad, "nccl", &some, NULL, &group));
  EXPECT(group == NULL);
  WALK_INVALID(dsc_comm_adopt(walk_world.world, "nccl", &some, NULL, NULL));
  WALK_INVALID(dsc_comm_adopt(walk_world.world, "nccl", NULL, NULL, &group));
  WALK_INVALID(dsc_comm_adopt(walk_world.world, NULL, &some, NULL, &group));
  WALK_INVALID(dsc_comm_adopt(walk_world.world, "rccl", &some, NULL, &group));
  for (int i = 0; i < WRONG_OPTIONS; ++i)
    WALK_INVALID(dsc_comm_adopt(walk_world.world, "nccl", &some, &options[i], &group));
  WALK(DSC_ERR_UNSUPPORTED, dsc_comm_adopt(walk_world.world, "nccl", &some, NULL, &group));
  EXPECT(group == NULL);
}

static void create_group(void) {
  static const int32_t all[] = {0, 1}, twice[] = {1, 1}, outside[] = {0, 2}, negative[] = {-1, 0};
  dsc_comm_t* group = walk_world.world;
  dsc_comm_options_t options[WRONG_OPTIONS];
  wrong_group_options(options);
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_create_group(bad, all, 2, NULL, &group));
  EXPECT(group == NULL);
  WALK_INVALID(dsc_comm_create_group(walk_world.world, all, 2, NULL, NULL));
  WALK_INVALID(dsc_comm_create_group(walk_world.world, NULL, 2, NULL, &group));
  WALK_INVALID(dsc_comm_create_group(walk_world.world, all, 0, NULL, &group));
  WALK_INVALID(dsc_comm_create_group(walk_world.world, all, -1, NULL, &group));
  WALK_INVALID(dsc_comm_create_group(walk_world.world, all, 3, NULL, &group));
  WALK_INVALID(dsc_comm_create_group(walk_world.world, twice, 2, NULL, &group));
  WALK_INVALID(dsc_comm_create_group(walk_world.world, outside, 2, NULL, &group));
  WALK_INVALID(dsc_comm_create_group(walk_world.world, negative, 2, NULL, &group));
  for (int i = 0; i < WRONG_OPTIONS; ++i)
    WALK_INVALID(dsc_comm_create_group(walk_world.world, all, 2, &options[i], &group));
  EXPECT(group == NULL);
}

static void set_timeout(void) {
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_set_timeout(bad, 1000));
  WALK_INVALID(dsc_comm_set_timeout(walk_world.world, 0));
  WALK_INVALID(dsc_comm_set_timeout(walk_world.world, -1));
  WALK_INVALID(dsc_comm_set_timeout(walk_world.world, INT32_MIN));
  WALK(DSC_OK, dsc_comm_set_timeout(walk_world.world, 20000));
}

static void timeout(void) {
  int32_t timeout_ms = 99;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_timeout(bad, &timeout_ms));
  WALK_INVALID(dsc_comm_timeout(walk_world.world, NULL));
  EXPECT(timeout_ms == 99);
  WALK(DSC_OK, dsc_comm_set_timeout(walk_world.world, 20000));
  WALK(DSC_OK, dsc_comm_timeout(walk_world.world, &timeout_ms));
  EXPECT(timeout_ms == 20000);
}

static void comm_abort(void) { WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_abort(bad)); }
static void comm_finalize(void) { WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_finalize(bad)); }

static void comm_destroy(void) {
  WALK(DSC_OK, dsc_comm_destroy(NULL));
  WALK_BAD_HANDLES_BUT_NULL(WALK_COMM, dsc_comm_t, dsc_comm_destroy(bad));
}

static void comm_error(void) {
  dsc_error_info_t info;
  memset(&info, 0x77, sizeof info);
  info.struct_size = sizeof info;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_error_info(bad, &info));
  WALK_INVALID(dsc_comm_error_info(walk_world.world, NULL));
  info.struct_size = offsetof(dsc_error_info_t, index) - 1; /* smaller than the struct of the first version */
  WALK_INVALID(dsc_comm_error_info(walk_world.world, &info));
  EXPECT(info.code == 0x77777777);
  info.struct_size = sizeof info;
  WALK(DSC_OK, dsc_comm_error_info(walk_world.world, &info));
  EXPECT(info.code == DSC_OK && info.revoked == 0 && info.n_ranks == 0 && info.text[0] == 0);
}

static void comm_stats(void) {
  dsc_op_stats_t stats;
  size_t count = 99;
  memset(&stats, 0x77, sizeof stats);
  stats.struct_size = sizeof stats;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_stats(bad, &stats, 1, &count));
  WALK_INVALID(dsc_comm_stats(walk_world.world, &stats, 1, NULL));
  WALK_INVALID(dsc_comm_stats(walk_world.world, NULL, 1, &count));
  stats.struct_size = 0;
  WALK_INVALID(dsc_comm_stats(walk_world.world, &stats, 1, &count));
  EXPECT(count == 99 && stats.operation[0] == 0x77);
  WALK(DSC_OK, dsc_comm_stats(walk_world.world, NULL, 0, &count));
  EXPECT(count >= 1 && count < 99);
}

static void set_nonfinite_check(void) {
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_set_nonfinite_check(bad, DSC_NONFINITE_CHECK_COUNT));
  WALK_INVALID(dsc_comm_set_nonfinite_check(walk_world.world, -1));
  WALK_INVALID(dsc_comm_set_nonfinite_check(walk_world.world, 3));
  WALK(DSC_OK, dsc_comm_set_nonfinite_check(walk_world.world, DSC_NONFINITE_CHECK_OFF));
}

static void nonfinite(void) {
  dsc_nonfinite_info_t info;
  memset(&info, 0x77, sizeof info);
  info.struct_size = sizeof info;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_nonfinite_info(bad, 0, &info));
  WALK_INVALID(dsc_comm_nonfinite_info(walk_world.world, 0, NULL));
  WALK_INVALID(dsc_comm_nonfinite_info(walk_world.world, 2, &info));
  EXPECT(info.operation[0] == 0x77);
  WALK(DSC_OK, dsc_comm_nonfinite_info(walk_world.world, 1, &info));
  EXPECT(info.elements == 0 && info.operations == 0 && info.rank == -1 && info.operation[0] == 0);
}

const walk_step_t walk_comm[] = {
    {"dsc_comm_rank", query_rank},
    {"dsc_comm_size", query_size},
    {"dsc_comm_local_rank", query_local_rank},
    {"dsc_comm_local_size", query_local_size},
    {"dsc_comm_backend", query_backend},
    {"dsc_comm_device", query_device},
    {"dsc_comm_name", name},
    {"dsc_comm_world_size", query_world_size},
    {"dsc_comm_id", id},
    {"dsc_comm_master_addr", query_master_addr},
    {"dsc_comm_master_port", master_port},
    {"dsc_comm_source", query_source},
    {"dsc_comm_start_summary", query_start_summary},
    {"dsc_comm_tuning", query_tuning},
    {"dsc_comm_progress_thread", query_progress_thread},
    {"dsc_comm_global_rank", global_rank},
    {"dsc_comm_group_rank", group_rank},
    {"dsc_comm_options_init", group_options_init},
    {"dsc_comm_split", split},
    {"dsc_comm_create_group", create_group},
    {"dsc_comm_adopt", adopt},
    {"dsc_comm_set_timeout", set_timeout},
    {"dsc_comm_timeout", timeout},
    {"dsc_comm_abort", comm_abort},
    {"dsc_comm_finalize", comm_finalize},
    {"dsc_comm_destroy", comm_destroy},
    {"dsc_comm_error_info", comm_error},
    {"dsc_comm_set_nonfinite_check", set_nonfinite_check},
    {"dsc_comm_nonfinite_info", nonfinite},
    {"dsc_comm_stats", comm_stats},
    {NULL, NULL},
};
