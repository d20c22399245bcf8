/* Ranks that do not agree: MISMATCH everywhere, nothing is written, the message says who called what. */
#include <stdio.h>
#include <string.h>

#include "cmocka_c.h"
#include "traffic.h"

enum { KIB = 1024, MOST_BYTES = 700 * KIB };

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

typedef struct disagreement {
  const char* what;
  operation_t usual;
  operation_t other; /* the culprit's */
} disagreement_t;

#define CALL(...) \
  { __VA_ARGS__, .dtype = DSC_DTYPE_F32, .op = DSC_OP_SUM, .count = 10 }

static const disagreement_t disagreements[] = {
    {"all_reduce, broadcast", CALL(.kind = ALL_REDUCE), CALL(.kind = BROADCAST)},
    {"all_reduce, all_gather", CALL(.kind = ALL_REDUCE), CALL(.kind = ALL_GATHER)},
    {"all_reduce, reduce_scatter", CALL(.kind = ALL_REDUCE), CALL(.kind = REDUCE_SCATTER)},
    {"all_reduce, barrier", CALL(.kind = ALL_REDUCE), CALL(.kind = BARRIER)},
    {"broadcast, all_gather", CALL(.kind = BROADCAST), CALL(.kind = ALL_GATHER)},
    {"broadcast, reduce_scatter", CALL(.kind = BROADCAST), CALL(.kind = REDUCE_SCATTER)},
    {"broadcast, barrier", CALL(.kind = BROADCAST), CALL(.kind = BARRIER)},
    {"all_gather, reduce_scatter", CALL(.kind = ALL_GATHER), CALL(.kind = REDUCE_SCATTER)},
    {"all_gather, barrier", CALL(.kind = ALL_GATHER), CALL(.kind = BARRIER)},
    {"reduce_scatter, barrier", CALL(.kind = REDUCE_SCATTER), CALL(.kind = BARRIER)},
    {"types of a sum",
     CALL(.kind = ALL_REDUCE),
     {.kind = ALL_REDUCE, .dtype = DSC_DTYPE_I32, .op = DSC_OP_SUM}},
    {"types of a broadcast", CALL(.kind = BROADCAST), {.kind = BROADCAST, .dtype = DSC_DTYPE_U32}},
    {"types of a gather", CALL(.kind = ALL_GATHER), {.kind = ALL_GATHER, .dtype = DSC_DTYPE_I32}},
    {"types of a scatter",
     CALL(.kind = REDUCE_SCATTER),
     {.kind = REDUCE_SCATTER, .dtype = DSC_DTYPE_U32, .op = DSC_OP_SUM}},
    {"sum, max", CALL(.kind = ALL_REDUCE), {.kind = ALL_REDUCE, .dtype = DSC_DTYPE_F32, .op = DSC_OP_MAX}},
    {"scattered sum, average",
     CALL(.kind = REDUCE_SCATTER),
     {.kind = REDUCE_SCATTER, .dtype = DSC_DTYPE_F32, .op = DSC_OP_AVG}},
    {"roots", CALL(.kind = BROADCAST), {.kind = BROADCAST, .dtype = DSC_DTYPE_F32, .root = 1}},
    {"counts of a sum", CALL(.kind = ALL_REDUCE), CALL(.kind = ALL_REDUCE, .seed = 1)},
    {"counts of a broadcast", CALL(.kind = BROADCAST), CALL(.kind = BROADCAST, .seed = 1)},
    {"counts of a gather", CALL(.kind = ALL_GATHER), CALL(.kind = ALL_GATHER, .seed = 1)},
    {"counts of a scatter", CALL(.kind = REDUCE_SCATTER), CALL(.kind = REDUCE_SCATTER, .seed = 1)},
};

/* Small, past one stage, and the two in memory that is reached without copying. */
static const struct {
  size_t bytes; /* of the larger buffer at four ranks */
  layout_t layout;
} forms[] = {{160, PLAIN}, {600 * KIB, PLAIN_IN_PLACE}, {64 * KIB, SHARED}, {640 * KIB, SHARED_IN_PLACE}};

typedef struct mismatch_case {
  const arena_t* arena;
  const disagreement_t* disagreement;
  dsc_comm_t* group;
  int32_t culprit;
  operation_t mine;
} mismatch_case_t;

/* "rank 1: broadcast(" or "ranks 0, 2: all_reduce(" */
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
  char usual[64], other[64];
  describe_group(it, false, it->disagreement->usual.kind, usual, sizeof usual);
  describe_group(it, true, it->disagreement->other.kind, other, sizeof other);
  if (strstr(text, usual) != NULL && strstr(text, other) != NULL) return 0;
  FAIL(it->arena->self, "%s: the message does not have \"%s\" and \"%s\": %s", it->disagreement->what, usual,
       other, text);
}

/* Afterwards the communicator refuses every call and tells why. */
static int check_revoked(const mismatch_case_t* it) {
  rank_t* self = it->arena->self;
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_comm_error(it->group, &info));
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
    CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_work_wait(work, NULL, -1));
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

static int check_disagreement(const arena_t* arena, const disagreement_t* disagreement, int32_t culprit,
                              size_t form) {
  rank_t* self = arena->self;
  mismatch_case_t it = {.arena = arena, .disagreement = disagreement, .culprit = culprit};
  it.mine = arena->rank == culprit ? disagreement->other : disagreement->usual;
  it.mine.count = forms[form].bytes / 16 + it.mine.seed; /* the seed tells who has another count */
  it.mine.layout = forms[form].layout;
  CHECK_OK(self, dsc_comm_split(arena->comm, 0, arena->rank, NULL, &it.group));
  if (form % 2 == 1) CHECK_OK(self, dsc_barrier(it.group, NULL, NULL)); /* not always the first operation */
  PASS_ON(check_call(&it, ((size_t)culprit + form) % 3 == 2));
  PASS_ON(check_revoked(&it));
  CHECK_OK(self, dsc_comm_destroy(it.group));
  return 0;
}

static int disagreements_body(rank_t* self) {
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, MOST_BYTES));
  const size_t n_forms = test_scale() > 1 ? 3 : LENGTH(forms);
  for (size_t i = 0; i < LENGTH(disagreements); ++i)
    for (size_t form = i % 2; form<n_forms; form += test_scale()> 4 ? 2 : 1)
      for (int32_t culprit = 0; culprit < self->size; ++culprit)
        PASS_ON(check_disagreement(&arena, &disagreements[i], culprit, form));
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

/* Calls that make something: whoever gets nothing gets NULL. */
static int makers_body(rank_t* self) {
  const bool culprit = self->rank == 1;
  dsc_comm_t* group = self->world; /* anything but NULL */
  void* memory = &group;
  dsc_comm_t* world[3];
  for (int i = 0; i < 3; ++i) CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &world[i]));
  const int32_t list[] = {0, 1, 2};
  CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_comm_create_group(world[0], list, culprit ? 3 : 2, NULL, &group));
  CHECK(self, group == NULL);
  CHECK(self, strstr(dsc_last_error_message(), "rank 1: create_group(") != NULL);
  CHECK_RESULT(self, DSC_ERR_MISMATCH,
               dsc_mem_alloc(world[1], culprit ? 4096 : 8192, DSC_MEMORY_HOST, &memory));
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
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL)); /* the parent is none the worse */
  return 0;
}

static void makers_disagree(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, makers_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_ranks_disagree),
      cmocka_unit_test(three_ranks_disagree),
      cmocka_unit_test(four_ranks_disagree),
      cmocka_unit_test(makers_disagree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
