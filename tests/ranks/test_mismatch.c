/* Ranks that disagree: every rank gets MISMATCH, nothing is written, and the message says which rank called
 * what. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmocka_c.h"
#include "reference.h"
#include "repetitions.h"
#include "traffic.h"

enum { KIB = 1024, MOST_BYTES = 700 * KIB };

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

typedef struct disagreement {
  operation_t usual;
  operation_t other; /* what the culprit calls */
} disagreement_t;

enum { MOST_DISAGREEMENTS = 512 };

static disagreement_t disagreements[MOST_DISAGREEMENTS];
static size_t n_disagreements;

static void add(operation_t usual, operation_t other) {
  if (n_disagreements == MOST_DISAGREEMENTS) abort();
  disagreements[n_disagreements++] = (disagreement_t){usual, other};
}

static operation_t make(kind_t kind) {
  return (operation_t){.kind = kind, .dtype = DSC_DTYPE_F32, .op = DSC_OP_SUM, .count = 1};
}

static bool reduces(kind_t kind) {
  return kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER || kind == REDUCE_SCATTER_V;
}

static bool has_root(kind_t kind) {
  return kind == BROADCAST || kind == REDUCE || kind == GATHER || kind == SCATTER;
}

static void add_types(kind_t kind) {
  for (dsc_dtype_t dtype = DSC_DTYPE_I8; dtype <= DSC_DTYPE_BOOL; ++dtype) {
    operation_t other = make(kind);
    other.dtype = dtype;
    if (dtype != DSC_DTYPE_F32 && (!reduces(kind) || op_is_offered(DSC_OP_SUM, dtype)))
      add(make(kind), other);
  }
}

static void add_reductions(kind_t kind) {
  static const dsc_dtype_t dtypes[] = {DSC_DTYPE_F32, DSC_DTYPE_U32};
  for (size_t i = 0; i < LENGTH(dtypes); ++i)
    for (dsc_op_t op = DSC_OP_SUM + 1; op <= DSC_OP_BXOR; ++op) {
      operation_t usual = make(kind), other = make(kind);
      usual.dtype = other.dtype = dtypes[i];
      other.op = op;
      if (op_is_offered(op, dtypes[i])) add(usual, other);
    }
}

/* Makes every pair of operations, and for each operation every argument that may differ. */
static void make_disagreements(void) {
  for (kind_t kind = ALL_REDUCE; kind <= BARRIER; ++kind) {
    for (kind_t other = ALL_REDUCE; other <= BARRIER; ++other)
      if (other != kind) add(make(kind), make(other));
    if (kind == BARRIER) continue;
    add_types(kind);
    if (reduces(kind)) add_reductions(kind);
    operation_t longer = make(kind), elsewhere = make(kind);
    longer.count = 2; /* longer by 3 elements, see check_disagreement() */
    add(make(kind), longer);
    elsewhere.root = 1;
    if (has_root(kind)) add(make(kind), elsewhere);
  }
}

/* A small size, one larger than a stage, and two in memory that is read without copying. */
static const struct {
  size_t bytes; /* of the larger buffer with four ranks */
  layout_t layout;
} forms[] = {{192, PLAIN}, {600 * KIB, PLAIN_IN_PLACE}, {64 * KIB, SHARED}, {640 * KIB, SHARED_IN_PLACE}};

typedef struct mismatch_case {
  const arena_t* arena;
  const disagreement_t* disagreement;
  dsc_comm_t* group;
  int32_t culprit;
  operation_t mine;
} mismatch_case_t;

/* Writes "rank 1: broadcast(" or "ranks 0, 2: all_reduce(". */
static void describe_group(const mismatch_case_t* it, bool culprit, kind_t kind, char* text, size_t bytes) {
  const int32_t size = it->arena->size;
  int used = snprintf(text, bytes, "%s", culprit || size == 2 ? "rank " : "ranks ");
  const char* comma = "";
  for (int32_t r = 0; r < size; ++r) {
    if ((r == it->culprit) != culprit) continue;
    used += snprintf(text + used, bytes - (size_t)used, "%s%d", comma, r);
    comma = ", ";
  }
  snprintf(text + used, bytes - (size_t)used, ": %s(", kind_name(kind));
}

static int check_text(const mismatch_case_t* it, const char* text) {
  const kind_t kind = it->disagreement->usual.kind;
  if (kind == ALL_TO_ALL_V && it->disagreement->other.kind == kind && strstr(text, "which expects") != NULL)
    return 0; /* the message names two ranks whose lengths differ */
  char usual[64], other[64];
  describe_group(it, false, it->disagreement->usual.kind, usual, sizeof usual);
  describe_group(it, true, it->disagreement->other.kind, other, sizeof other);
  if (strstr(text, usual) != NULL && strstr(text, other) != NULL) return 0;
  FAIL(it->arena->self, "the message does not have \"%s\" and \"%s\": %s", usual, other, text);
}

/* Afterwards the communicator refuses every call and gives the reason. */
static int check_revoked(const mismatch_case_t* it) {
  rank_t* self = it->arena->self;
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_comm_error_info(it->group, &info));
  CHECK(self, info.code == DSC_ERR_MISMATCH && info.revoked == 1);
  CHECK(self, info.sequence >= 1 && info.operation[0] != 0);
  CHECK(self, info.n_ranks >= 1 && info.rank == info.ranks[0]);
  PASS_ON(check_text(it, info.text));
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_barrier(it->group, NULL, NULL));
  return check_text(it, dsc_last_error_message());
}

static int check_call(const mismatch_case_t* it, bool with_work) {
  rank_t* self = it->arena->self;
  const buffers_t buffers = prepare(it->arena, &it->mine);
  dsc_work_t* work = NULL;
  if (with_work) {
    CHECK_OK(self, call(it->group, &it->mine, &buffers, &work));
    CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_work_wait(work, -1, NULL));
  } else {
    CHECK_RESULT(self, DSC_ERR_MISMATCH, call(it->group, &it->mine, &buffers, NULL));
    char prefix[32];
    snprintf(prefix, sizeof prefix, "dsc_%s: ", kind_name(it->mine.kind));
    CHECK(self, strncmp(dsc_last_error_message(), prefix, strlen(prefix)) == 0);
  }
  PASS_ON(check_text(it, dsc_last_error_message()));
  PASS_ON(verify_untouched(it->arena, &it->mine, &buffers));
  if (with_work) CHECK_OK(self, dsc_work_destroy(work));
  return 0;
}

static int check_disagreement(const arena_t* arena, size_t index, int32_t culprit, size_t form) {
  rank_t* self = arena->self;
  const disagreement_t* disagreement = &disagreements[index];
  mismatch_case_t it = {.arena = arena, .disagreement = disagreement, .culprit = culprit};
  it.mine = arena->rank == culprit ? disagreement->other : disagreement->usual;
  it.mine.count =
      /* the lengths of all_to_all_v must be divisible by 3 */
      forms[form].bytes / 32 + (it.mine.count - 1) * 3;
  it.mine.layout = forms[form].layout;
  CHECK_OK(self, dsc_comm_split(arena->comm, 0, arena->rank, NULL, &it.group));
  /* the operation is not always the first one */
  if (form % 2 == 1) CHECK_OK(self, dsc_barrier(it.group, NULL, NULL));
  PASS_ON(check_call(&it, ((size_t)culprit + form) % 3 == 2));
  PASS_ON(check_revoked(&it));
  CHECK_OK(self, dsc_comm_destroy(it.group));
  return 0;
}

/* Each disagreement uses one of the forms in turn. Sanitizer runs are slow and test fewer. */
static int disagreements_body(rank_t* self) {
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, MOST_BYTES));
  for (size_t i = 0; i < n_disagreements; i += test_scale())
    for (int32_t culprit = 0; culprit < self->size; ++culprit)
      PASS_ON(check_disagreement(&arena, i, culprit, (i / test_scale() + (size_t)culprit) % LENGTH(forms)));
  return arena_close(&arena);
}

static void two_ranks_disagree(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, disagreements_body, NULL), 0);
}

static void three_ranks_disagree(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, disagreements_body, NULL), 0);
}

static void four_ranks_disagree(void** state) {
  (void)state;
  assert_int_equal(run_ranks(4, disagreements_body, NULL), 0);
}

/* Functions that create an object. A rank that gets an error gets NULL as the object. */
static int makers_body(rank_t* self) {
  const bool culprit = self->rank == 1;
  dsc_comm_t* group = self->world; /* not NULL, so that the test sees the call set it to NULL */
  void* memory = &group;
  dsc_comm_t* world[3];
  for (int i = 0; i < 3; ++i) CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &world[i]));
  const int32_t list[] = {0, 1, 2};
  CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_comm_create_group(world[0], list, culprit ? 3 : 2, NULL, &group));
  CHECK(self, group == NULL);
  CHECK(self, strstr(dsc_last_error_message(), "rank 1: create_group(") != NULL);
  CHECK_RESULT(self, DSC_ERR_MISMATCH,
               dsc_mem_alloc(world[1], culprit ? 4096 : 8192, DSC_MEMORY_KIND_HOST, &memory));
  CHECK(self, memory == NULL);
  CHECK(self, strstr(dsc_last_error_message(), "4096 bytes") != NULL);
  group = self->world;
  if (culprit) {
    CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_barrier(world[2], NULL, NULL));
  } else {
    CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_comm_split(world[2], 0, 0, NULL, &group));
    CHECK(self, group == NULL);
  }
  for (int i = 0; i < 3; ++i) {
    CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_comm_split(world[i], 0, 0, NULL, &group));
    CHECK(self, group == NULL);
    CHECK_OK(self, dsc_comm_destroy(world[i]));
  }
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL)); /* the parent still works */
  return 0;
}

static void makers_disagree(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, makers_body, NULL), 0);
}

/* Calls that traffic.h does not have: the monitored barrier, and batches. */
static int compounds_body(rank_t* self) {
  const bool culprit = self->rank == 1;
  int32_t in[3] = {1, 2, 3}, out[4] = {-1, -1, -1, -1}; /* one gathered element of each of up to 4 ranks */
  dsc_comm_t* group[3];
  for (int i = 0; i < 3; ++i) CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group[i]));
  CHECK_RESULT(self, DSC_ERR_MISMATCH,
               culprit ? dsc_monitored_barrier(group[0], 10000)
                       : dsc_all_reduce(group[0], in, out, 3, DSC_DTYPE_I32, DSC_OP_SUM, NULL, NULL));
  CHECK_OK(self, dsc_batch_begin(group[1]));
  for (int i = 0; i < 2; ++i) { /* the culprit calls in the other order */
    if ((i == 1) == culprit)
      CHECK_OK(self, dsc_all_reduce(group[1], in, out, 3, DSC_DTYPE_I32, DSC_OP_SUM, NULL, NULL));
    else
      CHECK_OK(self, dsc_all_gather(group[1], in, out, 1, DSC_DTYPE_I32, NULL, NULL));
  }
  CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_batch_end(group[1], NULL, NULL));
  dsc_op_t scaled = 0;
  CHECK_OK(self, dsc_op_create_premul(culprit ? 0.5 : 0.25, &scaled));
  float values[3] = {1, 2, 3}, sums[3] = {-1, -1, -1};
  CHECK_RESULT(self, DSC_ERR_MISMATCH,
               dsc_all_reduce(group[2], values, sums, 3, DSC_DTYPE_F32, scaled, NULL, NULL));
  CHECK_OK(self, dsc_op_destroy(scaled));
  for (int i = 0; i < 4; ++i) CHECK(self, out[i] == -1);
  for (int i = 0; i < 3; ++i) {
    CHECK(self, sums[i] == -1);
    CHECK_OK(self, dsc_comm_destroy(group[i]));
  }
  return 0;
}

static void compounds_disagree(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 4; ++size) assert_int_equal(run_ranks(size, compounds_body, NULL), 0);
}

static int64_t now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

/* Measures the time from the last call until all ranks have the error: it must be only a few scheduling
 * delays, whichever rank is last. */
static int promptness_body(rank_t* self) {
  enum { MOST_US = 10000000 /* far from the time-out */ };
  const int rounds = test_repetitions(20, self->size);
  int64_t slowest_us = 0;
  for (int round = 0; round < rounds; ++round) {
    dsc_comm_t* group = NULL;
    float value = 1, sum = -1;
    CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
    if (self->rank == round % self->size) usleep(3000); /* the other ranks wait, some of them asleep */
    int64_t times[2] = {now_us(), 0};                   /* the times of the call and of its end */
    CHECK_RESULT(self, DSC_ERR_MISMATCH,
                 dsc_all_reduce(group, &value, &sum, 1, DSC_DTYPE_F32,
                                self->rank == self->size - 1 ? DSC_OP_MAX : DSC_OP_SUM, NULL, NULL));
    times[1] = now_us();
    CHECK_OK(self, dsc_all_reduce(self->world, times, times, 2, DSC_DTYPE_I64, DSC_OP_MAX, NULL, NULL));
    if (times[1] - times[0] > slowest_us) slowest_us = times[1] - times[0];
    CHECK_OK(self, dsc_comm_destroy(group));
  }
  if (self->rank == 0)
    printf("%d ranks: all have the mismatch %.3f ms after the last came, at most\n", self->size,
           (double)slowest_us / 1e3);
  CHECK(self, slowest_us < MOST_US);
  return 0;
}

static void all_hear_of_it_at_once(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 4; ++size) assert_int_equal(run_ranks(size, promptness_body, NULL), 0);
}

int main(void) {
  make_disagreements();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_ranks_disagree),  cmocka_unit_test(three_ranks_disagree),
      cmocka_unit_test(four_ranks_disagree), cmocka_unit_test(makers_disagree),
      cmocka_unit_test(compounds_disagree),  cmocka_unit_test(all_hear_of_it_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
