/* Statistics of a communicator: which operations were called, how often, with how many bytes, and how long
 * they took. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmocka_c.h"
#include "traffic.h"

enum { CAPACITY = 64 };

static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

typedef struct expected {
  kind_t kind;
  uint64_t bytes_class;
  uint64_t count;
  uint64_t bytes;
} expected_t;

static const dsc_op_stats_t* find(const dsc_op_stats_t* stats, size_t n, const expected_t* wanted) {
  for (size_t i = 0; i < n; ++i)
    if (strcmp(stats[i].operation, kind_name(wanted->kind)) == 0 &&
        stats[i].bytes_class == wanted->bytes_class)
      return &stats[i];
  return NULL;
}

static int check_stats(rank_t* self, dsc_comm_t* comm, const expected_t* wanted, size_t n_wanted,
                       uint64_t elapsed_ns) {
  dsc_op_stats_t stats[CAPACITY];
  memset(stats, 0, sizeof stats);
  stats[0].struct_size = sizeof stats[0];
  size_t n = 0;
  uint64_t spent_ns = 0;
  CHECK_OK(self, dsc_comm_stats(comm, stats, CAPACITY, &n));
  for (size_t i = 0; i < n; ++i) {
    CHECK(self, stats[i].struct_size == sizeof stats[i]);
    spent_ns += stats[i].waiting_ns + stats[i].moving_ns;
  }
  for (size_t i = 0; i < n_wanted; ++i) {
    const dsc_op_stats_t* found = find(stats, n, &wanted[i]);
    if (found == NULL || found->count != wanted[i].count || found->bytes != wanted[i].bytes)
      FAIL(self, "%s of class %zu: expected %zu calls of %zu bytes, came %zu of %zu",
           kind_name(wanted[i].kind), (size_t)wanted[i].bytes_class, (size_t)wanted[i].count,
           (size_t)wanted[i].bytes, found == NULL ? 0 : (size_t)found->count,
           found == NULL ? 0 : (size_t)found->bytes);
  }
  if (n != n_wanted)
    FAIL(self, "%zu totals, expected %zu; the first is of %s", n, n_wanted, stats[0].operation);
  if (spent_ns > elapsed_ns)
    FAIL(self, "%zu ns of waiting and moving in %zu ns", (size_t)spent_ns, (size_t)elapsed_ns);
  return 0;
}

/* Repeats an operation `times` times, with counts from `count` on. */
static int repeat(const arena_t* arena, kind_t kind, size_t count, int times) {
  for (int i = 0; i < times; ++i) {
    const operation_t operation = {.kind = kind,
                                   .dtype = DSC_DTYPE_F32,
                                   .op = DSC_OP_SUM,
                                   .root = kind >= SEND ? 1 - arena->rank : 0,
                                   .count = count + (size_t)i};
    PASS_ON(check_operation(arena, &operation));
  }
  return 0;
}

static int sequence_body(rank_t* self) {
  const uint64_t size = (uint64_t)self->size;
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, 64 * 1024));
  dsc_comm_t* group = NULL;
  const uint64_t start = now_ns();
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  arena.comm = group;
  PASS_ON(check_stats(self, group, NULL, 0, UINT64_MAX)); /* creating the group is not counted */
  /* 1024 bytes are the upper limit of their size class */
  PASS_ON(repeat(&arena, ALL_REDUCE, 256, 1));
  PASS_ON(repeat(&arena, ALL_REDUCE, 257, 3)); /* 1028, 1032 and 1036 bytes */
  PASS_ON(repeat(&arena, ALL_REDUCE, 0, 1));
  PASS_ON(repeat(&arena, BROADCAST, 10, 2));
  PASS_ON(repeat(&arena, ALL_GATHER, 8, 1));
  PASS_ON(repeat(&arena, REDUCE_SCATTER, 16, 1));
  PASS_ON(repeat(&arena, BARRIER, 0, 5));
  if (self->size == 2) {
    PASS_ON(repeat(&arena, self->rank == 0 ? SEND : RECV, 1, 1));
  }
  const expected_t wanted[] = {
      {ALL_REDUCE, 1024, 1, 1024},
      {ALL_REDUCE, 2048, 3, 1028 + 1032 + 1036},
      {ALL_REDUCE, 0, 1, 0},
      {BROADCAST, 64, 2, 40 + 44},
      {ALL_GATHER, 32 * size, 1, 32 * size},
      {REDUCE_SCATTER, 64 * size, 1, 64 * size},
      {BARRIER, 0, 5, 0},
      {self->rank == 0 ? SEND : RECV, 4, 1, 4},
  };
  PASS_ON(check_stats(self, group, wanted, self->size == 2 ? 8 : 7, now_ns() - start));
  CHECK_OK(self, dsc_comm_destroy(group));
  return arena_close(&arena);
}

static void counts_and_bytes(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, sequence_body, NULL), 0);
}

/* A rank that is early has waited, a late rank has not. */
static int waiting_body(rank_t* self) {
  dsc_comm_t* group = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  const struct timespec pause = {0, 80 * 1000 * 1000};
  dsc_work_t* work = NULL;
  if (self->rank == 0) { /* calls after the other rank's pause has begun */
    CHECK_OK(self, dsc_barrier(group, NULL, &work));
    CHECK_RESULT(self, DSC_IN_PROGRESS, dsc_work_wait(work, 1, NULL));
  }
  PASS_ON(ranks_meet(self));
  if (self->rank == 1) {
    nanosleep(&pause, NULL);
    CHECK_OK(self, dsc_barrier(group, NULL, &work));
  }
  CHECK_OK(self, dsc_work_wait(work, -1, NULL));
  CHECK_OK(self, dsc_work_destroy(work));
  dsc_op_stats_t stats = {.struct_size = sizeof stats};
  size_t n = 0;
  CHECK_OK(self, dsc_comm_stats(group, &stats, 1, &n));
  CHECK(self, n == 1 && stats.count == 1);
  if (self->rank == 0) CHECK(self, stats.waiting_ns >= 40 * 1000 * 1000);
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

static void waiting_is_told_from_moving(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, waiting_body, NULL), 0);
}

/* A caller with less room, with none, and with the larger struct of a later release. */
static int room_body(rank_t* self) {
  typedef struct {
    dsc_op_stats_t known;
    uint64_t later;
  } later_t;
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  int32_t value = 0;
  CHECK_OK(self, dsc_all_reduce(self->world, &value, &value, 1, DSC_DTYPE_I32, DSC_OP_SUM, NULL, NULL));
  size_t n = 0;
  CHECK_OK(self, dsc_comm_stats(self->world, NULL, 0, &n));
  CHECK(self, n == 2);
  later_t stats[3];
  memset(stats, 0x77, sizeof stats);
  stats[0].known.struct_size = sizeof stats[0];
  CHECK_RESULT(self, DSC_TRUNCATED, dsc_comm_stats(self->world, &stats[0].known, 1, &n));
  CHECK(self, n == 2 && stats[0].known.count == 1);
  CHECK(self, stats[1].known.count == 0x7777777777777777u); /* beyond the given room, so not written */
  CHECK_OK(self, dsc_comm_stats(self->world, &stats[0].known, 3, &n));
  CHECK(self, n == 2 && stats[1].known.count == 1);
  CHECK(self, stats[2].known.count == 0x7777777777777777u);
  stats[0].known.struct_size = 8;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_comm_stats(self->world, &stats[0].known, 3, &n));
  return 0;
}

static void room_of_the_caller(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, room_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_and_bytes),
      cmocka_unit_test(waiting_is_told_from_moving),
      cmocka_unit_test(room_of_the_caller),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
