/* Agreeing after a failure, and continuing with the remaining ranks. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "census.h"
#include "cmocka_c.h"
#include "gpu.h"
#include "repetitions.h"
#include "traffic.h"

enum { KIB = 1024, PATIENCE_MS = 20000 };

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

static void sleep_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static dsc_result_t barrier(dsc_comm_t* comm) { return dsc_barrier(comm, NULL, NULL); }

/* Checks which ranks the latest call on comm missed. */
static int missing_are(rank_t* self, dsc_comm_t* comm, const int32_t* ranks, int32_t n) {
  int32_t missing[RANKS_MAX];
  size_t found = 0;
  CHECK_OK(self, dsc_comm_missing(comm, missing, RANKS_MAX, &found));
  const int32_t count = (int32_t)found;
  if (count != n || (n > 0 && memcmp(missing, ranks, (size_t)n * sizeof *ranks) != 0))
    FAIL(self, "%d missing, first %d; expected %d, first %d", count, count > 0 ? missing[0] : -1, n,
         n > 0 ? ranks[0] : -1);
  return 0;
}

/* Checks that everything works on comm, which has the listed ranks of the world. `arena` has room for them.
 */
static int works(rank_t* self, dsc_comm_t* comm, const int32_t* members, int32_t n, arena_t arena) {
  int32_t size = -1, gathered[RANKS_MAX];
  CHECK_OK(self, dsc_comm_size(comm, &size));
  CHECK(self, size == n);
  CHECK_OK(self, dsc_all_gather(comm, &self->rank, gathered, 1, DSC_DTYPE_I32, NULL, NULL));
  CHECK(self, memcmp(gathered, members, (size_t)n * sizeof *members) == 0);
  arena.comm = comm;
  arena.size = n;
  CHECK_OK(self, dsc_comm_rank(comm, &arena.rank));
  static const layout_t layouts[] = {PLAIN, SHARED, SHARED_IN_PLACE, SHARED_TWO_PIECES, SOME_RANKS_SHARED};
  for (size_t i = 0; i < LENGTH(layouts); ++i)
    for (kind_t kind = ALL_REDUCE; kind <= REDUCE_SCATTER; ++kind) {
      const operation_t operation = {.kind = kind,
                                     .dtype = DSC_DTYPE_F32,
                                     .op = DSC_OP_SUM,
                                     .count = 4 * KIB + 3,
                                     .layout = layouts[i],
                                     .seed = 77 * i};
      PASS_ON(check_operation(&arena, &operation));
    }
  return 0;
}

/* ---- agree ---- */

static int agree_body(rank_t* self) {
  uint64_t random = 5;
  const int rounds = test_repetitions(300, 30);
  for (int round = 0; round < rounds; ++round) {
    int32_t mine = 0, expected = -1, agreed = 0;
    for (int32_t rank = 0; rank < self->size; ++rank) {
      const int32_t flags = (int32_t)(next_random(&random) | next_random(&random));
      expected &= flags;
      if (rank == self->rank) mine = flags;
    }
    CHECK_OK(self, dsc_comm_agree(self->world, mine, &agreed));
    if (agreed != expected)
      FAIL(self, "round %d: agreed on %x, expected %x", round, (unsigned)agreed, (unsigned)expected);
    /* agree and barrier do not disturb each other */
    if (round % 10 == 0) CHECK_OK(self, barrier(self->world));
  }
  return missing_are(self, self->world, NULL, 0);
}

static void agree_is_the_and_of_all(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 8; size += size < 4 ? 1 : 4)
    assert_int_equal(run_ranks(size, agree_body, NULL), 0);
}

/* All ranks name a late rank. It takes part in the next call. */
static int late_body(rank_t* self) {
  static const int32_t late[] = {1};
  int32_t agreed = 99;
  dsc_error_info_t info = {.struct_size = sizeof info};
  if (self->rank == late[0]) {
    CHECK_OK(self, barrier(self->world));
    for (; info.code == DSC_OK; sleep_ms(10)) /* until the other ranks have given up */
      CHECK_OK(self, dsc_comm_error_info(self->world, &info));
    PASS_ON(missing_are(self, self->world, NULL, 0));
  } else {
    CHECK_OK(self, barrier(self->world));
    CHECK_OK(self, dsc_comm_set_timeout(self->world, 4000)); /* enough time for the other rank that joins */
    const int64_t start = now_ms();
    CHECK_RESULT(self, DSC_ERR_TIMEOUT, dsc_comm_agree(self->world, 1, &agreed));
    CHECK(self, now_ms() - start < PATIENCE_MS && agreed == 99);
    CHECK(self, strstr(dsc_last_error_message(), "rank 1 (pid ") != NULL);
    PASS_ON(missing_are(self, self->world, late, 1));
    CHECK_OK(self, dsc_comm_set_timeout(self->world, RANKS_TIMEOUT_MS));
  }
  CHECK_OK(self, dsc_comm_error_info(self->world, &info));
  CHECK(self, info.code == DSC_ERR_TIMEOUT && info.rank == late[0] && strcmp(info.operation, "agree") == 0);
  CHECK_OK(self, dsc_comm_agree(self->world, self->rank == 0 ? 6 : 3, &agreed));
  CHECK(self, agreed == 2);
  return missing_are(self, self->world, NULL, 0);
}

static void late_rank_is_named(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, late_body, NULL), 0);
}

static int mixed_body(rank_t* self) {
  static const int32_t odd[] = {1, 3};
  int32_t agreed = 0;
  dsc_comm_t* shrunk = self->world;
  const dsc_result_t result = self->rank % 2 != 0 ? dsc_comm_shrink(self->world, NULL, &shrunk)
                                                  : dsc_comm_agree(self->world, 1, &agreed);
  CHECK(self, result == DSC_ERR_MISMATCH);
  CHECK(self, strstr(dsc_last_error_message(), "shrink") != NULL);
  CHECK(self, strstr(dsc_last_error_message(), "agree") != NULL);
  PASS_ON(missing_are(self, self->world, odd, 2));
  CHECK_OK(self, dsc_comm_agree(self->world, 1, &agreed));
  return 0;
}

static void agree_and_shrink_do_not_match(void** state) {
  (void)state;
  assert_int_equal(run_ranks(4, mixed_body, NULL), 0);
}

/* One rank is in another operation. The other ranks must not wait for it until the time-out. */
static int elsewhere_body(rank_t* self) {
  /* With a device, split and finalize also wait for NCCL's communicator, which takes until the time-out. */
  const int calls = getenv("DSC_TEST_DEVICE") ? 2 : 4;
  for (int call = 0; call < calls; ++call) {
    dsc_comm_t *group = NULL, *part = NULL;
    dsc_result_t result;
    int32_t agreed = 0;
    float x = 1;
    CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
    CHECK_OK(self, barrier(group));
    const int64_t start = now_ms();
    if (self->rank != 1)
      result = call % 2 ? dsc_comm_shrink(group, NULL, &part) : dsc_comm_agree(group, 1, &agreed);
    else if (call < 2)
      result = dsc_all_reduce(group, &x, &x, 1, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL);
    else
      result = call == 2 ? dsc_comm_split(group, 0, 0, NULL, &part) : dsc_comm_finalize(group);
    CHECK(self, now_ms() - start < PATIENCE_MS);
    CHECK_RESULT(self, DSC_ERR_MISMATCH, result);
    CHECK(self, strstr(dsc_last_error_message(), call % 2 ? ": shrink; rank 1: " : ": agree; rank 1: "));
    CHECK(self, strstr(dsc_last_error_message(), call < 2    ? "collective 2 (all_reduce)"
                                                 : call == 2 ? "collective 2 (split)"
                                                             : "collective 2 (finalize)"));
    CHECK_OK(self, dsc_comm_agree(group, 1, &agreed)); /* now all ranks call it */
    CHECK_OK(self, dsc_comm_destroy(group));
  }
  return 0;
}

static void a_rank_in_another_operation_is_a_mismatch(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, elsewhere_body, NULL), 0);
}

/* Rank 1 has started a barrier that rank 0 has not called, but rank 1 also answers agree. Only rank 2 waits
 * in the barrier. */
static int answered_body(rank_t* self) {
  static const int32_t elsewhere[] = {2};
  dsc_comm_t* group = NULL;
  dsc_work_t* work = NULL;
  int32_t agreed = 0;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  if (self->rank == 1) CHECK_OK(self, dsc_barrier(group, NULL, &work));
  CHECK_RESULT(self, DSC_ERR_MISMATCH, self->rank == 2 ? barrier(group) : dsc_comm_agree(group, 1, &agreed));
  CHECK(self, strstr(dsc_last_error_message(), ": agree; rank 2: collective 1 (barrier)"));
  if (self->rank != 2) PASS_ON(missing_are(self, group, elsewhere, 1));
  if (work) CHECK_OK(self, dsc_work_destroy(work));
  return dsc_comm_destroy(group) != DSC_OK;
}

static void a_rank_that_answers_is_not_elsewhere(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, answered_body, NULL), 0);
}

/* agree waits for a rank that is still inside an operation which all ranks have called. */
static int queued_body(rank_t* self) {
  enum { COUNT = 1 << 20 };
  static float x[4][COUNT]; /* shared by threads or separate in processes, so each rank has its own row */
  dsc_work_t* works[3];
  int32_t agreed = 0;
  for (int i = 0; i < 3; ++i)
    CHECK_OK(self, dsc_all_reduce(self->world, x[self->rank], x[self->rank], COUNT, DSC_DTYPE_F32, DSC_OP_SUM,
                                  NULL, &works[i]));
  if (self->rank == 0) sleep_ms(1500);
  CHECK_OK(self, dsc_comm_agree(self->world, 3, &agreed));
  for (int i = 0; i < 3; ++i) {
    CHECK(self, dsc_work_synchronize(works[i], RANKS_TIMEOUT_MS) == DSC_OK);
    CHECK_OK(self, dsc_work_destroy(works[i]));
  }
  return 0;
}

static void operations_that_all_have_called_are_no_mismatch(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, queued_body, NULL), 0);
}

static void* abort_soon(void* comm) {
  sleep_ms(1500);
  return (void*)(intptr_t)dsc_comm_abort(comm);
}

/* An abort by a member frees the ranks that are inside agree or shrink. An abort before the call changes
 * nothing. */
static int abort_body(rank_t* self) {
  dsc_comm_t* shrunk = NULL;
  int32_t agreed = 0;
  const dsc_result_t met = barrier(self->world); /* otherwise a rank could still be inside its start */
  CHECK(self, met == DSC_OK || met == DSC_ERR_REVOKED);
  CHECK_OK(self, dsc_comm_abort(self->world)); /* before the call, so without effect */
  PASS_ON(ranks_meet(self));
  if (self->rank != 2) {
    pthread_t thread;
    void* aborted = NULL;
    if (self->rank == 0) CHECK(self, pthread_create(&thread, NULL, abort_soon, self->world) == 0);
    const int64_t start = now_ms();
    const dsc_result_t result = dsc_comm_shrink(self->world, NULL, &shrunk);
    if (self->rank == 0) pthread_join(thread, &aborted);
    CHECK(self, aborted == NULL && result == DSC_ERR_REVOKED);
    CHECK(self, now_ms() - start < PATIENCE_MS);
    CHECK(self, strstr(dsc_last_error_message(), "rank 0 (pid ") != NULL);
  }
  PASS_ON(ranks_meet(self));
  CHECK_OK(self, dsc_comm_agree(self->world, 1, &agreed));
  CHECK_OK(self, dsc_comm_shrink(self->world, NULL, &shrunk));
  CHECK_OK(self, barrier(shrunk));
  CHECK_OK(self, dsc_comm_finalize(shrunk));
  CHECK_OK(self, dsc_comm_destroy(shrunk));
  return 0;
}

static void abort_ends_a_recovery(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, abort_body, NULL), 0);
}

/* ---- shrink ---- */

/* All ranks survive the failure, so the new group has all ranks. */
static int all_live_body(rank_t* self) {
  static const int32_t all[] = {0, 1, 2};
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, 256 * KIB));
  for (int round = 0; round < 4; ++round) {
    dsc_comm_t *group = NULL, *shrunk = NULL;
    float x = 1;
    char name[32];
    size_t bytes = 0;
    CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
    if (round == 1)
      CHECK_RESULT(
          self, DSC_ERR_MISMATCH,
          dsc_all_reduce(group, &x, &x, (size_t)(self->rank == 1), DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
    if (round == 2) {
      PASS_ON(ranks_meet(self));
      CHECK_OK(self, dsc_comm_abort(group));
    }
    if (round == 3) {
      CHECK_OK(self, dsc_comm_set_timeout(group, 100));
      if (self->rank != 2) CHECK_RESULT(self, DSC_ERR_TIMEOUT, barrier(group));
      CHECK_OK(self, dsc_comm_set_timeout(group, RANKS_TIMEOUT_MS));
    }
    CHECK_OK(self, dsc_comm_shrink(group, NULL, &shrunk));
    PASS_ON(missing_are(self, group, NULL, 0));
    CHECK_OK(self, dsc_comm_name(shrunk, name, sizeof name, &bytes));
    CHECK(self, strstr(name, "/shrunk") != NULL);
    if (round == 0) CHECK_OK(self, barrier(group)); /* the group is unaffected */
    CHECK_OK(self, dsc_comm_destroy(group));
    PASS_ON(works(self, shrunk, all, 3, arena));
    CHECK_OK(self, dsc_comm_destroy(shrunk));
    CHECK_OK(self, barrier(self->world));
  }
  return arena_close(&arena);
}

/* Shrinks comm and checks the name of the new communicator. */
static int shrinks_to(rank_t* self, dsc_comm_t* comm, const char* expected, dsc_comm_t** shrunk) {
  char name[32];
  size_t bytes = 0;
  CHECK_OK(self, dsc_comm_shrink(comm, NULL, shrunk));
  CHECK_OK(self, dsc_comm_name(*shrunk, name, sizeof name, &bytes));
  if (strcmp(name, expected) != 0) FAIL(self, "the name is \"%s\", expected \"%s\"", name, expected);
  return 0;
}

/* Names also work if a rank was not in all groups, or if the name is long. Errors contain the name. */
static int names_body(rank_t* self) {
  dsc_comm_t *first = NULL, *second = NULL, *third = NULL, *last = NULL, *group = NULL, *twice = NULL;
  PASS_ON(shrinks_to(self, self->world, "world/shrunk", &first));
  if (self->rank != 2) PASS_ON(shrinks_to(self, first, "world/shrunk2", &second));
  CHECK_OK(self, dsc_comm_destroy(first));
  PASS_ON(shrinks_to(self, self->world, "world/shrunk3", &third));
  PASS_ON(shrinks_to(self, third, "world/shrunk4", &last));
  PASS_ON(ranks_meet(self));
  CHECK_OK(self, dsc_comm_abort(last));
  CHECK_RESULT(self, DSC_ERR_REVOKED, barrier(last));
  CHECK(self, strstr(dsc_last_error_message(), "\"world/shrunk4\"") != NULL);
  dsc_comm_options_t options;
  CHECK_OK(self, dsc_comm_options_init(&options, sizeof options));
  options.name = "a name of thirty-one characters";
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, &options, &group));
  dsc_comm_t* once = NULL;
  PASS_ON(shrinks_to(self, group, "a name of thirty-one cha/shrunk", &once));
  PASS_ON(shrinks_to(self, once, "a name of thirty-one ch/shrunk2", &twice));
  dsc_comm_t* const all[] = {second, third, last, group, once, twice};
  for (size_t i = 0; i < LENGTH(all); ++i) CHECK_OK(self, dsc_comm_destroy(all[i]));
  return 0;
}

static void successors_have_names_of_their_own(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, names_body, NULL), 0);
}

static void shrink_after_failures_without_a_loss(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, all_live_body, NULL), 0);
}

/* One rank leaves the group, in one case the rank that holds the shared state. Also tests options and
 * subgroups of the new group. */
static int leaver_body(rank_t* self) {
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, 256 * KIB));
  for (int32_t leaver = 0; leaver < self->size; ++leaver) {
    dsc_comm_t *group = NULL, *shrunk = NULL, *pair = NULL;
    CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
    PASS_ON(ranks_meet(self));
    if (self->rank == leaver) {
      CHECK_OK(self, dsc_comm_destroy(group));
      CHECK_OK(self, barrier(self->world));
      continue;
    }
    int32_t members[RANKS_MAX], n = 0;
    for (int32_t rank = 0; rank < self->size; ++rank)
      if (rank != leaver) members[n++] = rank;
    dsc_comm_options_t options;
    CHECK_OK(self, dsc_comm_options_init(&options, sizeof options));
    options.name = "survivors";
    options.timeout_ms = 12345;
    CHECK_RESULT(self, DSC_ERR_PEER_LEFT, barrier(group));
    CHECK_OK(self, dsc_comm_shrink(group, &options, &shrunk));
    PASS_ON(missing_are(self, group, &leaver, 1));
    char name[32];
    size_t bytes = 0;
    CHECK_OK(self, dsc_comm_name(shrunk, name, sizeof name, &bytes));
    CHECK(self, strcmp(name, "survivors") == 0);
    PASS_ON(works(self, shrunk, members, n, arena));
    const int32_t last_two[] = {n - 1, n - 2}, reversed[] = {members[n - 1], members[n - 2]};
    CHECK_OK(self, dsc_comm_create_group(shrunk, last_two, 2, NULL, &pair));
    if (pair != NULL) PASS_ON(works(self, pair, reversed, 2, arena));
    CHECK_OK(self, dsc_comm_finalize(shrunk));
    CHECK_OK(self, dsc_comm_destroy(pair));
    CHECK_OK(self, dsc_comm_destroy(shrunk));
    CHECK_OK(self, dsc_comm_destroy(group));
    CHECK_OK(self, barrier(self->world));
  }
  return arena_close(&arena);
}

static void shrink_without_a_rank_that_left(void** state) {
  (void)state;
  assert_int_equal(run_ranks(4, leaver_body, NULL), 0);
}

/* From eight ranks down to one. All ranks know which rank leaves next. Memory of the first group can be used
 * to the end. */
static int down_to_one_body(rank_t* self) {
  int32_t members[RANKS_MAX], n = self->size;
  for (int32_t rank = 0; rank < n; ++rank) members[rank] = rank;
  uint64_t random = 11;
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, 256 * KIB));
  dsc_comm_t* group = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  for (; n > 1; --n) {
    const int32_t index = (int32_t)(next_random(&random) % (uint64_t)n);
    const int32_t leaver = members[index];
    memmove(members + index, members + index + 1, (size_t)(n - 1 - index) * sizeof *members);
    if (self->rank == leaver) break;
    dsc_comm_t* shrunk = NULL;
    int32_t agreed = 0;
    const dsc_result_t noticed = barrier(group);
    if (noticed != DSC_ERR_PEER_LEFT && noticed != DSC_ERR_REVOKED)
      FAIL(self, "with %d ranks the barrier gave %s", n, dsc_result_name(noticed));
    CHECK_OK(self, dsc_comm_agree(group, self->rank | 16, &agreed));
    CHECK(self, (agreed & 16) != 0);
    PASS_ON(missing_are(self, group, &index, 1));
    CHECK_OK(self, dsc_comm_shrink(group, NULL, &shrunk));
    PASS_ON(missing_are(self, group, &index, 1));
    CHECK_OK(self, dsc_comm_destroy(group));
    group = shrunk;
    PASS_ON(works(self, group, members, n - 1, arena));
    /* On a device a rank that leaves would end operations that are still on the streams of other ranks. */
    if (gpu_wanted()) CHECK_OK(self, barrier(group));
  }
  CHECK_OK(self, dsc_comm_destroy(group));
  CHECK_OK(self, barrier(self->world));
  return arena_close(&arena);
}

static void shrink_again_and_again(void** state) {
  (void)state;
  assert_int_equal(run_ranks(8, down_to_one_body, NULL), 0);
}

/* ---- ends ---- */

static int states_body(rank_t* self) {
  dsc_comm_t *group = NULL, *shrunk = NULL;
  int32_t agreed = 7;
  size_t count = 99;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  CHECK_OK(self, dsc_comm_finalize(group));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_comm_agree(group, 1, &agreed));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_comm_shrink(group, NULL, &shrunk));
  CHECK(self, agreed == 7 && shrunk == NULL);
  CHECK_OK(self, dsc_comm_destroy(group));
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  CHECK_OK(self, dsc_finalize());
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_comm_agree(group, 1, &agreed));
  CHECK_OK(self, dsc_comm_missing(group, NULL, 0, &count));
  CHECK(self, count == 0);
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

static void recovery_of_what_is_over(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, states_body, NULL), 0);
}

/* Finalizing a failed world waits for all ranks of the communicators that were shrunk from it. The next world
 * can be created immediately. */
static int end_body(rank_t* self) {
  for (int round = 0; round < 3; ++round) {
    dsc_comm_t *shrunk = NULL, *again = NULL;
    CHECK_OK(self, dsc_init_distributed(&self->options, &self->world));
    PASS_ON(ranks_meet(self)); /* no rank may abort while another rank is still starting */
    CHECK_OK(self, dsc_comm_abort(self->world));
    CHECK_OK(self, dsc_comm_shrink(self->world, NULL, &shrunk));
    if (round == 1) { /* the same for the shrunk communicator */
      CHECK_OK(self, barrier(shrunk));
      PASS_ON(ranks_meet(self));
      CHECK_OK(self, dsc_comm_abort(shrunk));
      CHECK_OK(self, dsc_comm_shrink(shrunk, NULL, &again));
    }
    if (self->rank == 1) {
      sleep_ms(200);
      ranks_note(self, round + 1); /* the other ranks check that dsc_finalize() returned after this note */
    }
    if (round == 2 && self->rank == 0) CHECK_OK(self, dsc_comm_finalize(shrunk));
    CHECK_OK(self, dsc_finalize());
    CHECK(self, ranks_noted(self) == round + 1);
    CHECK_RESULT(self, DSC_ERR_STATE, barrier(again != NULL ? again : shrunk));
    CHECK_OK(self, dsc_comm_destroy(again));
    CHECK_OK(self, dsc_comm_destroy(shrunk));
  }
  return 0;
}

static void end_of_a_world_that_shrank(void** state) {
  (void)state;
  assert_int_equal(run_without_world(3, end_body, NULL), 0);
}

/* Finalizing a failed world that was not shrunk does not wait. */
static int failed_end_body(rank_t* self) {
  CHECK_OK(self, dsc_init_distributed(&self->options, &self->world));
  CHECK_OK(self, barrier(self->world));
  PASS_ON(ranks_meet(self));
  CHECK_OK(self, dsc_comm_abort(self->world));
  if (self->rank == 1) PASS_ON(ranks_await(self, 1)); /* rank 0 does not wait for this rank */
  const int64_t start = now_ms();
  CHECK_OK(self, dsc_finalize());
  ranks_note(self, 1);
  CHECK(self, now_ms() - start < PATIENCE_MS);
  return 0;
}

static void end_of_a_world_that_failed(void** state) {
  (void)state;
  assert_int_equal(run_without_world(2, failed_end_body, NULL), 0);
}

static int one_shrink(rank_t* self) {
  dsc_comm_t *group = NULL, *shrunk = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  const dsc_result_t met = barrier(group); /* no rank may abort while another rank is still starting */
  CHECK(self, met == DSC_OK || met == DSC_ERR_REVOKED);
  CHECK_OK(self, dsc_comm_abort(group));
  CHECK_OK(self, dsc_comm_shrink(group, NULL, &shrunk));
  CHECK_OK(self, dsc_comm_destroy(group));
  CHECK_OK(self, barrier(shrunk));
  CHECK_OK(self, dsc_comm_destroy(shrunk));
  return 0;
}

static int census_body(rank_t* self) {
  census_t before, after = {0};
  for (int i = 0; i < 5; ++i) PASS_ON(one_shrink(self));
  CHECK_OK(self, barrier(self->world));
  before = take_census();
  CHECK_OK(self, barrier(self->world));
  const int more_shrinks = scaled_repetitions(50, 4, 10);
  for (int i = 0; i < more_shrinks; ++i) PASS_ON(one_shrink(self));
  for (int i = 0; i < 100; ++i) { /* other ranks may still release resources; a leak stays */
    CHECK_OK(self, barrier(self->world));
    after = take_census();
    int32_t more = after.descriptors > before.descriptors || after.maps > before.maps;
    CHECK_OK(self, dsc_all_reduce(self->world, &more, &more, 1, DSC_DTYPE_I32, DSC_OP_MAX, NULL, NULL));
    if (more == 0) return 0;
    sleep_ms(10);
  }
  FAIL(self, "descriptors %d, maps %d before; %d, %d after", before.descriptors, before.maps,
       after.descriptors, after.maps);
}

static void fifty_recoveries_leave_nothing(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, census_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(agree_is_the_and_of_all),
      cmocka_unit_test(late_rank_is_named),
      cmocka_unit_test(agree_and_shrink_do_not_match),
      cmocka_unit_test(a_rank_in_another_operation_is_a_mismatch),
      cmocka_unit_test(a_rank_that_answers_is_not_elsewhere),
      cmocka_unit_test(operations_that_all_have_called_are_no_mismatch),
      cmocka_unit_test(abort_ends_a_recovery),
      cmocka_unit_test(shrink_after_failures_without_a_loss),
      cmocka_unit_test(shrink_without_a_rank_that_left),
      cmocka_unit_test(shrink_again_and_again),
      cmocka_unit_test(successors_have_names_of_their_own),
      cmocka_unit_test(recovery_of_what_is_over),
      cmocka_unit_test(end_of_a_world_that_shrank),
      cmocka_unit_test(end_of_a_world_that_failed),
      cmocka_unit_test(fifty_recoveries_leave_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
