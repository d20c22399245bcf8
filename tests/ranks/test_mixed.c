/* A thousand operations at the same time on three overlapping groups, awaited in any order. */
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "reference.h"
#include "traffic.h"

enum { KIB = 1024, MOST = 1000, GROUPS = 3, PART_BYTES = 10 * KIB };

static size_t operations(void) { return MOST / (test_scale() < 4 ? test_scale() : 4); }

typedef struct flight {
  arena_t arena; /* the operation's part of the group's memory */
  operation_t operation;
  buffers_t buffers;
  dsc_work_t* work; /* NULL if this rank does not take part */
} flight_t;

/* Draws the same on all ranks: the operation of a group. A message has a sender and a receiver. */
static operation_t draw(uint64_t* random, int32_t group_size, int32_t group_rank, bool* takes_part) {
  static const dsc_dtype_t dtypes[] = {DSC_DTYPE_F32, DSC_DTYPE_F64, DSC_DTYPE_BF16, DSC_DTYPE_U8};
  operation_t it = {.op = DSC_OP_SUM};
  it.kind = (kind_t)(next_random(random) % KINDS);
  it.dtype = dtypes[next_random(random) % 4];
  it.layout = (layout_t)(next_random(random) % LAYOUTS);
  it.seed = next_random(random) >> 8;
  const size_t share = kind_has_parts(it.kind) ? (size_t)group_size : 1;
  it.count = next_random(random) % (PART_BYTES / share / element_bytes(it.dtype));
  const int32_t from = (int32_t)(next_random(random) % (uint64_t)group_size);
  const int32_t to = (from + 1 + (int32_t)(next_random(random) % (uint64_t)(group_size - 1))) % group_size;
  it.root = from;
  *takes_part = true;
  if (it.kind != SEND && it.kind != RECV) return it;
  *takes_part = group_rank == from || group_rank == to;
  it.kind = group_rank == from ? SEND : RECV;
  it.root = group_rank == from ? to : from;
  return it;
}

static int launch(flight_t* flights, const arena_t* arenas, const int32_t* sizes, uint64_t seed) {
  uint64_t random = seed;
  for (size_t i = 0; i < operations(); ++i) {
    const size_t group = next_random(&random) % GROUPS;
    const arena_t* arena = &arenas[group];
    bool takes_part = false;
    flight_t* it = &flights[i];
    it->operation = draw(&random, sizes[group], arena->rank, &takes_part);
    if (arena->comm == NULL || !takes_part) continue;
    it->arena = arena_part(arena, i, operations());
    it->buffers = prepare(&it->arena, &it->operation);
    CHECK_OK(arena->self, call(arena->comm, &it->operation, &it->buffers, &it->work));
  }
  return 0;
}

static int finish(rank_t* self, flight_t* it, uint64_t how) {
  dsc_result_t result = DSC_IN_PROGRESS;
  int32_t completed = 0;
  switch (how % 4) {
    case 0:
      break;
    case 1:
      result = dsc_work_synchronize(it->work, -1);
      break;
    case 2:
      while (result == DSC_IN_PROGRESS) result = dsc_work_wait(it->work, 1, NULL);
      break;
    default:
      while (completed == 0) CHECK_OK(self, dsc_work_test(it->work, &completed));
  }
  if (result == DSC_IN_PROGRESS) result = dsc_work_wait(it->work, -1, NULL);
  CHECK_RESULT(self, DSC_OK, result);
  PASS_ON(verify(&it->arena, &it->operation, &it->buffers));
  CHECK_OK(self, dsc_work_destroy(it->work));
  return 0;
}

static int finish_all(rank_t* self, flight_t* flights, uint64_t seed) {
  uint64_t random = seed + 1000003 * (uint64_t)(self->rank + 1);
  size_t order[MOST];
  for (size_t i = 0; i < operations(); ++i) {
    const size_t at = next_random(&random) % (i + 1);
    order[i] = order[at];
    order[at] = i;
  }
  for (size_t i = 0; i < operations(); ++i)
    if (flights[order[i]].work != NULL) PASS_ON(finish(self, &flights[order[i]], next_random(&random)));
  return 0;
}

/* The groups are: all ranks; ranks 0, 1, 2; ranks 3, 2, 1 in this order. */
static int open_groups(rank_t* self, arena_t* arenas) {
  static const int32_t lists[2][3] = {{0, 1, 2}, {3, 2, 1}};
  arena_t memory;
  PASS_ON(arena_open(&memory, self, self->world, (PART_BYTES + 4 * KIB) * operations()));
  for (int i = 0; i < GROUPS; ++i) {
    arenas[i] = memory; /* groups may use memory of their parent, too */
    arenas[i].comm = self->world;
    if (i > 0) CHECK_OK(self, dsc_comm_create_group(self->world, lists[i - 1], 3, NULL, &arenas[i].comm));
    if (arenas[i].comm == NULL) continue;
    CHECK_OK(self, dsc_comm_rank(arenas[i].comm, &arenas[i].rank));
    CHECK_OK(self, dsc_comm_size(arenas[i].comm, &arenas[i].size));
  }
  return 0;
}

static int mixed_body(rank_t* self) {
  static const int32_t sizes[GROUPS] = {4, 3, 3};
  const uint64_t seed = *(const uint64_t*)self->arg;
  arena_t arenas[GROUPS];
  PASS_ON(open_groups(self, arenas));
  flight_t* flights = calloc(operations(), sizeof *flights);
  CHECK(self, flights != NULL);
  int failed = launch(flights, arenas, sizes, seed);
  if (failed == 0) failed = finish_all(self, flights, seed);
  free(flights);
  PASS_ON(failed);
  for (int i = 1; i < GROUPS; ++i) CHECK_OK(self, dsc_comm_destroy(arenas[i].comm));
  return arena_close(&arenas[0]);
}

static void a_thousand_in_any_order(void** state) {
  (void)state;
  static const uint64_t seeds[] = {1, 20260101, 0xfeedface};
  for (size_t i = 0; i < (test_scale() > 1 ? 1 : 3); ++i)
    assert_int_equal(run_ranks(4, mixed_body, &seeds[i]), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_thousand_in_any_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
