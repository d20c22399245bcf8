/* Every collective with every layout of buffers, at sizes near those where the data path changes. */
#include "cmocka_c.h"
#include "reference.h"
#include "traffic.h"

enum { KIB = 1024, MIB = 1024 * KIB };

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

static size_t max_bytes(void) { return ranks_are_processes() ? MIB : 1 * MIB + MIB / 2; }

static size_t largest(void) { return max_bytes() / test_scale(); }

/* Bytes of a rank's part, near the thresholds: published with the call up to 8 KiB for all that a rank sends,
 * zero copy from 16 KiB, one pass up to 128 KiB for all ranks, chunks of 16, 64 and 512 KiB, stages of 256
 * KiB, and several stages. */
static const size_t edges[] = {
    4,        64,        4 * KIB,   8 * KIB,   16 * KIB,  32 * KIB, 128 * KIB / 3,
    64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, 768 * KIB, 1 * MIB,  1 * MIB + 4 * KIB};

static int check_sizes(const arena_t* arena, operation_t operation, size_t limit) {
  const size_t bytes = element_bytes(operation.dtype);
  for (size_t i = 0; i < LENGTH(edges); ++i)
    for (int step = -1; step <= 1; ++step) {
      operation.count = edges[i] / bytes + (size_t)(step + 1) - (edges[i] / bytes > 0);
      if (operation.count * bytes > limit) return 0;
      ++operation.seed;
      PASS_ON(check_operation(arena, &operation));
    }
  return 0;
}

static int sizes_body(rank_t* self) {
  const kind_t kind = *(const kind_t*)self->arg;
  const size_t limit = largest() / (kind_has_parts(kind) ? (size_t)self->size : 1);
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, largest() + 64 * KIB));
  for (int layout = 0; layout < LAYOUTS; ++layout) {
    const operation_t operation = {.kind = kind,
                                   .dtype = DSC_DTYPE_F32,
                                   .op = DSC_OP_SUM,
                                   .root = layout % self->size,
                                   .layout = (layout_t)layout,
                                   .seed = (uint64_t)layout * 1000};
    PASS_ON(check_sizes(&arena, operation, limit));
  }
  return arena_close(&arena);
}

static void check_kind(kind_t kind) {
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, sizes_body, &kind), 0);
}

static void all_reduce_sizes(void** state) {
  (void)state;
  check_kind(ALL_REDUCE);
}

static void broadcast_sizes(void** state) {
  (void)state;
  check_kind(BROADCAST);
}

static void all_gather_sizes(void** state) {
  (void)state;
  check_kind(ALL_GATHER);
}

static void reduce_scatter_sizes(void** state) {
  (void)state;
  check_kind(REDUCE_SCATTER);
}

static void reduce_sizes(void** state) {
  (void)state;
  check_kind(REDUCE);
}

static void gather_sizes(void** state) {
  (void)state;
  check_kind(GATHER);
}

static void scatter_sizes(void** state) {
  (void)state;
  check_kind(SCATTER);
}

static void all_to_all_sizes(void** state) {
  (void)state;
  check_kind(ALL_TO_ALL);
}

static void sizes_with_lengths(void** state) {
  (void)state;
  check_kind(ALL_GATHER_V);
  check_kind(REDUCE_SCATTER_V);
  check_kind(ALL_TO_ALL_V);
}

/* An unsupported pair of type and operation is refused on every rank, and nothing is written. */
static int check_refused(const arena_t* arena, const operation_t* operation) {
  const buffers_t buffers = prepare(arena, operation);
  CHECK_RESULT(arena->self, DSC_ERR_UNSUPPORTED, call(arena->comm, operation, &buffers, NULL));
  return verify_untouched(arena, operation, &buffers);
}

static int pairs_body(rank_t* self) {
  static const size_t counts[] = {1, 26, 37, 105, 5000, 70000};
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, 8 * 70000 + KIB));
  operation_t operation = {.kind = ALL_REDUCE};
  for (size_t i = 0; i < LENGTH(counts) && counts[i] <= 70000 / test_scale(); ++i)
    for (operation.dtype = DSC_DTYPE_I8; operation.dtype <= DSC_DTYPE_BOOL; ++operation.dtype)
      for (operation.op = DSC_OP_SUM; operation.op <= DSC_OP_BXOR; ++operation.op) {
        operation.count = counts[i];
        operation.layout = operation.op % 2 == 0 ? PLAIN : SHARED;
        ++operation.seed;
        if (is_offered(&arena, &operation))
          PASS_ON(check_operation(&arena, &operation));
        else
          PASS_ON(check_refused(&arena, &operation));
      }
  return arena_close(&arena);
}

static void pairs_of_type_and_operation(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, pairs_body, NULL), 0);
}

/* Types that can only be moved, every root, and counts of zero without memory. */
static int moves_body(rank_t* self) {
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, 32 * KIB * RANKS_MAX));
  operation_t operation = {.seed = 7};
  static const kind_t kinds[] = {BROADCAST, ALL_GATHER, GATHER, SCATTER, ALL_TO_ALL, ALL_TO_ALL_V, BARRIER};
  for (size_t i = 0; i < LENGTH(kinds); ++i)
    for (operation.root = 0; operation.root < self->size; ++operation.root)
      for (operation.dtype = DSC_DTYPE_I8; operation.dtype <= DSC_DTYPE_BOOL; ++operation.dtype) {
        operation.kind = kinds[i];
        operation.count = operation.dtype % 2 == 0 ? 11 : 3 * KIB;
        operation.layout = (layout_t)(operation.seed++ % LAYOUTS);
        PASS_ON(check_operation(&arena, &operation));
      }
  const buffers_t none = {NULL, NULL, 0, 0};
  operation = (operation_t){.dtype = DSC_DTYPE_F32, .op = DSC_OP_SUM};
  for (operation.kind = ALL_REDUCE; operation.kind < BARRIER; ++operation.kind)
    CHECK_OK(self, call(self->world, &operation, &none, NULL));
  return arena_close(&arena);
}

static void moves(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, moves_body, NULL), 0);
}

static int many_ranks_body(rank_t* self) {
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, 40 * KIB * RANKS_MAX));
  operation_t operation = {.dtype = DSC_DTYPE_F64, .op = DSC_OP_AVG};
  for (operation.kind = ALL_REDUCE; operation.kind <= BARRIER; ++operation.kind)
    for (operation.count = 1; operation.count <= 5000; operation.count = operation.count * 17 - 3) {
      operation.root = (int32_t)(++operation.seed % (uint64_t)self->size);
      operation.layout = (layout_t)(operation.seed % LAYOUTS);
      PASS_ON(check_operation(&arena, &operation));
    }
  return arena_close(&arena);
}

static void more_ranks_than_cores(void** state) {
  (void)state;
  assert_int_equal(run_ranks(8, many_ranks_body, NULL), 0);
  assert_int_equal(run_ranks(16, many_ranks_body, NULL), 0);
}

/* As many ranks as a host may have cores. */
static int crowd_body(rank_t* self) {
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, 64 * KIB));
  operation_t operation = {.dtype = DSC_DTYPE_F32, .op = DSC_OP_SUM, .count = 200, .root = 63};
  for (operation.kind = ALL_REDUCE; operation.kind <= BARRIER; ++operation.kind) {
    operation.layout = operation.kind % 2 == 0 ? PLAIN : SHARED;
    ++operation.seed;
    PASS_ON(check_operation(&arena, &operation));
  }
  return arena_close(&arena);
}

static void sixty_four_ranks(void** state) {
  (void)state;
  if (test_scale() > 2) return; /* takes minutes under a sanitizer */
  assert_int_equal(run_ranks(64, crowd_body, NULL), 0);
}

/* Beyond the size of the last-level cache streaming stores are used. Tested once with plain and once with
 * shared memory. */
static int streaming_body(rank_t* self) {
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, 33 * MIB));
  const operation_t all_reduce = {
      .kind = ALL_REDUCE, .dtype = DSC_DTYPE_F32, .op = DSC_OP_SUM, .count = 33 * MIB / 4 - 1};
  operation_t operation = all_reduce;
  for (operation.layout = PLAIN; operation.layout <= SHARED_IN_PLACE; operation.layout += SHARED_IN_PLACE)
    PASS_ON(check_operation(&arena, &operation));
  operation.kind = BROADCAST;
  operation.layout = SHARED_MISALIGNED;
  PASS_ON(check_operation(&arena, &operation));
  operation.count /= 2;
  operation.kind = REDUCE_SCATTER;
  PASS_ON(check_operation(&arena, &operation));
  operation.kind = ALL_GATHER;
  PASS_ON(check_operation(&arena, &operation));
  for (operation.layout = PLAIN; operation.layout <= SHARED; operation.layout += SHARED) {
    operation.kind = GATHER;
    PASS_ON(check_operation(&arena, &operation));
    operation.kind = self->rank == 0 ? SEND : RECV;
    operation.root = 1 - self->rank;
    PASS_ON(check_operation(&arena, &operation));
    operation.root = 0;
  }
  return arena_close(&arena);
}

static void streaming(void** state) {
  (void)state;
  if (test_scale() > 1) return; /* uses the paths of the smaller sizes; only the store instructions differ */
  assert_int_equal(run_ranks(2, streaming_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_reduce_sizes),
      cmocka_unit_test(broadcast_sizes),
      cmocka_unit_test(all_gather_sizes),
      cmocka_unit_test(reduce_scatter_sizes),
      cmocka_unit_test(reduce_sizes),
      cmocka_unit_test(gather_sizes),
      cmocka_unit_test(scatter_sizes),
      cmocka_unit_test(all_to_all_sizes),
      cmocka_unit_test(sizes_with_lengths),
      cmocka_unit_test(pairs_of_type_and_operation),
      cmocka_unit_test(moves),
      cmocka_unit_test(more_ranks_than_cores),
      cmocka_unit_test(sixty_four_ranks),
      cmocka_unit_test(streaming),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
