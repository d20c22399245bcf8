/* Groups of ranks: their members, the order of the members, and what groups inherit from their parent. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "census.h"
#include "cmocka_c.h"
#include "gpu.h"
#include "traffic.h"

enum { KIB = 1024 };

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

/* Checks that the group has these world ranks in this order, and works. */
static int check_members(rank_t* self, dsc_comm_t* group, const int32_t* members, int32_t n) {
  int32_t rank = -1, size = -1, translated = -2;
  CHECK_OK(self, dsc_comm_rank(group, &rank));
  CHECK_OK(self, dsc_comm_size(group, &size));
  CHECK(self, size == n);
  CHECK(self, members[rank] == self->rank);
  for (int32_t i = 0; i < n; ++i) {
    CHECK_OK(self, dsc_comm_global_rank(group, i, &translated));
    CHECK(self, translated == members[i]);
    CHECK_OK(self, dsc_comm_group_rank(group, members[i], &translated));
    CHECK(self, translated == i);
  }
  int32_t gathered[RANKS_MAX];
  CHECK_OK(self, dsc_all_gather(group, &self->rank, gathered, 1, DSC_DTYPE_I32, NULL, NULL));
  CHECK(self, memcmp(gathered, members, (size_t)n * sizeof *members) == 0);
  return 0;
}

static int name_is(rank_t* self, dsc_comm_t* comm, const char* expected) {
  char name[32];
  size_t bytes = 0;
  CHECK_OK(self, dsc_comm_name(comm, name, sizeof name, &bytes));
  if (strcmp(name, expected) != 0) FAIL(self, "the name is \"%s\", expected \"%s\"", name, expected);
  return 0;
}

static int split_body(rank_t* self) {
  static const int32_t even[] = {2, 0}, odd[] = {1, 3}, all[] = {3, 2, 1, 0}, equal_keys[] = {0, 1, 2, 3};
  dsc_comm_t* group = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, self->rank % 2, self->rank % 2 ? 5 : -self->rank, NULL, &group));
  PASS_ON(check_members(self, group, self->rank % 2 ? odd : even, 2));
  int32_t outsider = 7;
  CHECK_OK(self, dsc_comm_group_rank(group, (self->rank + 1) % 4, &outsider));
  CHECK(self, outsider == -1);
  CHECK_OK(self, dsc_comm_destroy(group));

  CHECK_OK(self, dsc_comm_split(self->world, INT32_MAX, INT32_MAX - self->rank, NULL, &group));
  PASS_ON(check_members(self, group, all, 4));
  CHECK_OK(self, dsc_comm_destroy(group));

  CHECK_OK(self, dsc_comm_split(self->world, 0, INT32_MIN, NULL, &group));
  PASS_ON(check_members(self, group, equal_keys, 4));
  CHECK_OK(self, dsc_comm_destroy(group));

  group = self->world; /* not NULL, so that the test sees the call set it to NULL */
  CHECK_OK(self, dsc_comm_split(self->world, self->rank == 1 ? -1 : 3, 0, NULL, &group));
  CHECK(self, (group == NULL) == (self->rank == 1));
  static const int32_t without_one[] = {0, 2, 3};
  if (group != NULL) PASS_ON(check_members(self, group, without_one, 3));
  CHECK_OK(self, dsc_comm_destroy(group));

  CHECK_OK(self, dsc_comm_split(self->world, -1, 0, NULL, &group));
  CHECK(self, group == NULL);
  /* every rank in a separate group */
  CHECK_OK(self, dsc_comm_split(self->world, self->rank, 0, NULL, &group));
  PASS_ON(check_members(self, group, &self->rank, 1));
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

static void split_by_color_and_key(void** state) {
  (void)state;
  assert_int_equal(run_ranks(4, split_body, NULL), 0);
}

static int create_body(rank_t* self) {
  static const int32_t lists[][4] = {{2, 0}, {3}, {1, 3, 0}, {3, 1, 2, 0}, {0, 1, 2, 3}};
  static const int32_t lengths[] = {2, 1, 3, 4, 4};
  for (size_t i = 0; i < LENGTH(lists); ++i) {
    bool member = false;
    for (int32_t k = 0; k < lengths[i]; ++k) member = member || lists[i][k] == self->rank;
    dsc_comm_t* group = self->world;
    CHECK_OK(self, dsc_comm_create_group(self->world, lists[i], lengths[i], NULL, &group));
    CHECK(self, (group != NULL) == member);
    if (!member) continue;
    PASS_ON(check_members(self, group, lists[i], lengths[i]));
    CHECK_OK(self, dsc_comm_destroy(group));
  }
  return 0;
}

static void create_from_lists(void** state) {
  (void)state;
  assert_int_equal(run_ranks(4, create_body, NULL), 0);
}

/* Names, and the inherited time-out: a receive without a sender ends after it. */
static int options_body(rank_t* self) {
  dsc_comm_options_t options;
  CHECK_OK(self, dsc_comm_options_init(&options, sizeof options));
  dsc_comm_t *named = NULL, *cut = NULL, *short_lived = NULL, *child = NULL;
  PASS_ON(name_is(self, self->world, "world"));
  options.name = "pair";
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, &options, &named));
  PASS_ON(name_is(self, named, "pair"));
  options.name = "a name of more than thirty-one bytes";
  CHECK_OK(self, dsc_comm_split(named, 0, 0, &options, &cut));
  PASS_ON(name_is(self, cut, "a name of more than thirty-one "));
  CHECK_OK(self, dsc_comm_split(named, 0, 0, NULL, &child));
  char name[32];
  size_t bytes = 0;
  CHECK_OK(self, dsc_comm_name(child, name, sizeof name, &bytes));
  CHECK(self, strncmp(name, "pair/", 5) == 0);
  CHECK_OK(self, dsc_comm_destroy(child));
  options.name = NULL;
  options.timeout_ms = 4000; /* enough time for operations that all ranks join */
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, &options, &short_lived));
  CHECK_OK(self, dsc_comm_split(short_lived, 0, 0, NULL, &child)); /* inherits the time-out */
  if (self->rank == 0) {
    char byte = 0;
    const int64_t start = now_ms();
    CHECK_RESULT(self, DSC_ERR_TIMEOUT, dsc_recv(child, &byte, 1, DSC_DTYPE_U8, 1, NULL, NULL));
    CHECK(self, now_ms() - start >= 3990 && now_ms() - start < 20000);
    CHECK(self, strstr(dsc_last_error_message(), "rank 1") != NULL);
  }
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  /* the failure of a child group does not affect its parent */
  CHECK_OK(self, dsc_barrier(short_lived, NULL, NULL));
  const dsc_result_t late = dsc_barrier(child, NULL, NULL);
  CHECK(self, late == (self->rank == 0 ? DSC_ERR_REVOKED : DSC_ERR_TIMEOUT));
  dsc_comm_t* const groups[] = {named, cut, short_lived, child};
  for (size_t i = 0; i < LENGTH(groups); ++i) CHECK_OK(self, dsc_comm_destroy(groups[i]));
  return 0;
}

static void names_and_time_outs(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, options_body, NULL), 0);
}

/* Groups of groups use memory of the world, and their parents are destroyed before them. */
static int nested_body(rank_t* self) {
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, 64 * KIB));
  dsc_comm_t *half = NULL, *pair = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, self->rank / 4, 0, NULL, &half));
  CHECK_OK(self, dsc_comm_split(half, self->rank / 2 % 2, -self->rank, NULL, &pair));
  CHECK_OK(self, dsc_comm_destroy(half));
  CHECK_RESULT(self, DSC_ERR_BAD_HANDLE, dsc_barrier(half, NULL, NULL));
  const int32_t members[] = {self->rank | 1, self->rank & ~1};
  PASS_ON(check_members(self, pair, members, 2));
  arena.comm = pair;
  CHECK_OK(self, dsc_comm_rank(pair, &arena.rank));
  arena.size = 2;
  for (int layout = 0; layout < LAYOUTS; ++layout)
    for (kind_t kind = ALL_REDUCE; kind < BARRIER; ++kind) {
      const operation_t operation = {.kind = kind,
                                     .dtype = DSC_DTYPE_F32,
                                     .op = DSC_OP_SUM,
                                     .count = 4 * KIB + 3,
                                     .layout = (layout_t)layout,
                                     .seed = (uint64_t)(self->rank / 2 * 100 + layout)};
      PASS_ON(check_operation(&arena, &operation));
    }
  CHECK_OK(self, dsc_comm_finalize(pair));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_comm_finalize(pair));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_barrier(pair, NULL, NULL));
  CHECK_OK(self, dsc_comm_destroy(pair));
  return arena_close(&arena);
}

static void groups_of_groups(void** state) {
  (void)state;
  assert_int_equal(run_ranks(8, nested_body, NULL), 0);
}

/* Ranks that wait are told when another rank destroys its handle. */
static int leaver_body(rank_t* self) {
  dsc_comm_t* group = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  PASS_ON(ranks_meet(self));
  if (self->rank == 1) return dsc_comm_destroy(group) != DSC_OK;
  CHECK_RESULT(self, DSC_ERR_PEER_LEFT, dsc_barrier(group, NULL, NULL));
  CHECK(self, strstr(dsc_last_error_message(), "rank 1") != NULL);
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

static void leaving_is_told(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, leaver_body, NULL), 0);
}

/* After the world has ended the handles of its groups only give errors. */
static int outlive_body(rank_t* self) {
  dsc_comm_t* group = NULL;
  int32_t rank = -1;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  CHECK_OK(self, dsc_finalize());
  CHECK_RESULT(self, DSC_ERR_BAD_HANDLE, dsc_barrier(self->world, NULL, NULL));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_barrier(group, NULL, NULL));
  CHECK_OK(self, dsc_comm_rank(group, &rank));
  CHECK(self, rank == self->rank);
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

static void groups_outlive_the_world(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, outlive_body, NULL), 0);
}

static int one_group(rank_t* self) {
  dsc_comm_t* group = NULL;
  void* memory = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  CHECK_OK(self, dsc_mem_alloc(group, 10000, DSC_MEMORY_KIND_HOST, &memory));
  int32_t* value = memory;
  *value = 1;
  CHECK_OK(self, dsc_all_reduce(group, value, value, 1, DSC_DTYPE_I32, DSC_OP_SUM, NULL, NULL));
  CHECK(self, *value == self->size);
  CHECK_OK(self, dsc_mem_free(memory));
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

/* All ranks are idle between two barriers, while the first of them counts its resources. */
static int census_between_barriers(rank_t* self, census_t* census) {
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  *census = take_census();
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  return 0;
}

static int row_body(rank_t* self) {
  census_t before, after;
  for (int i = 0; i < 5; ++i) PASS_ON(one_group(self));
  PASS_ON(census_between_barriers(self, &before));
  const int more_groups = scaled_repetitions(100, 4, 10);
  for (int i = 0; i < more_groups; ++i) PASS_ON(one_group(self));
  /* The library's threads may still release resources of the last group. */
  for (int i = 0; i < 100; ++i) {
    PASS_ON(census_between_barriers(self, &after));
    if (gpu_wanted()) after.maps = before.maps; /* the GPU driver creates and removes maps at any time */
    int32_t more =
        after.descriptors > before.descriptors || after.threads > before.threads || after.maps > before.maps;
    CHECK_OK(self, dsc_all_reduce(self->world, &more, &more, 1, DSC_DTYPE_I32, DSC_OP_MAX, NULL, NULL));
    if (more == 0) break;
    /* gives the threads time to release resources; a leak stays */
    const struct timespec moment = {0, 10000000};
    nanosleep(&moment, NULL);
  }
  if (after.descriptors > before.descriptors || after.threads > before.threads || after.maps > before.maps)
    FAIL(self, "descriptors %d, threads %d, maps %d before; %d, %d, %d after", before.descriptors,
         before.threads, before.maps, after.descriptors, after.threads, after.maps);
  return 0;
}

static void a_hundred_groups_leave_nothing(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, row_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(split_by_color_and_key),
      cmocka_unit_test(create_from_lists),
      cmocka_unit_test(names_and_time_outs),
      cmocka_unit_test(groups_of_groups),
      cmocka_unit_test(leaving_is_told),
      cmocka_unit_test(groups_outlive_the_world),
      cmocka_unit_test(a_hundred_groups_leave_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
