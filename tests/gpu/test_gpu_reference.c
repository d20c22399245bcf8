/* Every operation, element type and reduction in device memory, compared with results in long double.
 * bounds.c explains the bounds. Everything except floating-point sums, products and averages must be exact.
 */
#include <string.h>

#include "bounds.h"
#include "cmocka_c.h"
#include "gpu.h"
#include "reference.h"
#include "traffic.h"

enum { MOST = 1 << 20 };

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

static const layout_t layouts[] = {PLAIN, PLAIN_IN_PLACE, PLAIN_MISALIGNED};

/* Some cards cannot sum 8-bit floats. Then all ranks get an error, and nothing is written. */
static int check(const arena_t* arena, const operation_t* operation) {
  const buffers_t buffers = prepare(arena, operation);
  const dsc_result_t result = call(arena->comm, operation, &buffers, NULL);
  const bool small = operation->dtype == DSC_DTYPE_F8E4M3 || operation->dtype == DSC_DTYPE_F8E5M2;
  if (result == DSC_ERR_UNSUPPORTED && small && gpu_is_real())
    return verify_untouched(arena, operation, &buffers);
  if (result != DSC_OK)
    FAIL(arena->self, "%s of %zu %s %s: %s", kind_name(operation->kind), operation->count,
         dsc_dtype_name(operation->dtype), dsc_op_name(operation->op), dsc_last_error_message());
  return verify_within_bounds(arena, operation, &buffers);
}

/* Checks a message from the first rank to the last. */
static int check_message(const arena_t* arena, operation_t operation) {
  const int32_t last = arena->size - 1;
  if (last == 0 || (arena->rank != 0 && arena->rank != last)) return 0;
  operation.kind = arena->rank == 0 ? SEND : RECV;
  operation.root = last - arena->rank;
  return check(arena, &operation);
}

/* Returns whether ranks share a real card. They then take turns of about ten milliseconds. */
static bool takes_turns(const arena_t* arena) {
  const char* why;
  return gpu_is_real() && gpu_count(&why) < arena->size;
}

/* Plain buffers of 0 elements, 1 element, an odd number, a large odd number that no kernel's step divides,
 * and 1 MiB. The fake's kernels run on the processor and get a quarter of 1 MiB. If time is short, only the
 * odd number and 1 MiB. */
static int check_sizes(const arena_t* arena, operation_t operation) {
  const size_t bytes = element_bytes(operation.dtype);
  const size_t most = gpu_is_real() ? MOST : MOST / 4;
  const size_t all = most / test_scale() / (kind_has_parts(operation.kind) ? (size_t)arena->size : 1);
  const size_t counts[] = {0, 1, 37, 4099 * 5 / bytes | 1, all / bytes};
  const bool some = takes_turns(arena);
  for (size_t i = some ? 2 : 0; i < LENGTH(counts); i += some ? 2 : 1)
    for (size_t l = 0; l < (i + 1 < LENGTH(counts) ? LENGTH(layouts) : 1); l += some ? LENGTH(layouts) : 1) {
      operation.count = counts[i];
      operation.layout = layouts[l];
      ++operation.seed;
      PASS_ON(operation.kind == SEND ? check_message(arena, operation) : check(arena, &operation));
    }
  return 0;
}

static bool is_reduction(kind_t kind) {
  return kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER || kind == REDUCE_SCATTER_V;
}

static int check_kinds(const arena_t* arena, dsc_dtype_t dtype) {
  static const kind_t kinds[] = {ALL_REDUCE, BROADCAST,  ALL_GATHER,   REDUCE_SCATTER,   REDUCE,       GATHER,
                                 SCATTER,    ALL_TO_ALL, ALL_GATHER_V, REDUCE_SCATTER_V, ALL_TO_ALL_V, SEND};
  for (size_t k = 0; k < LENGTH(kinds); ++k) {
    const dsc_op_t last = is_reduction(kinds[k]) ? DSC_OP_BXOR : DSC_OP_SUM;
    for (dsc_op_t op = DSC_OP_SUM; op <= last; ++op) {
      const operation_t operation = {.kind = kinds[k],
                                     .dtype = dtype,
                                     .op = op,
                                     .root = arena->size / 2,
                                     .seed = k * 100 + (uint64_t)op};
      if (is_offered(arena, &operation)) PASS_ON(check_sizes(arena, operation));
    }
  }
  return 0;
}

static int body(rank_t* self) {
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, MOST + 4096));
  for (dsc_dtype_t dtype = DSC_DTYPE_I8; dtype <= DSC_DTYPE_BOOL; ++dtype)
    PASS_ON(check_kinds(&arena, dtype));
  return arena_close(&arena);
}

/* Tests the bounds: results of the host engine are within them, and the same results with other signs are
 * not.
 */
static void bounds_notice_what_is_wrong(void** state) {
  (void)state;
  enum { FIRST = 7, COUNT = 500, SEED = 3, N = 4 };
  unsigned char result[COUNT * 8];
  stray_t stray;
  for (dsc_dtype_t dtype = DSC_DTYPE_F16; dtype <= DSC_DTYPE_F8E5M2; ++dtype)
    for (dsc_op_t op = DSC_OP_SUM; op <= DSC_OP_AVG; ++op) {
      if (!has_bounds(op, dtype)) continue;
      reduce_reference(result, FIRST, COUNT, dtype, op, SEED, N);
      assert_true(is_within_bounds(result, FIRST, COUNT, dtype, op, SEED, N, &stray));
      assert_false(is_within_bounds(result, FIRST + 1, COUNT, dtype, op, SEED, N, &stray));
      const size_t bytes = element_bytes(dtype);
      for (size_t i = 0; i < COUNT; ++i) result[i * bytes + bytes - 1] ^= 0x80;
      assert_false(is_within_bounds(result, FIRST, COUNT, dtype, op, SEED, N, &stray));
    }
}

static void one_rank(void** state) {
  (void)state;
  assert_int_equal(run_ranks(1, body, NULL), 0);
}

static void two_ranks(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, body, NULL), 0);
}

static void three_ranks(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, body, NULL), 0);
}

static void four_ranks(void** state) {
  (void)state;
  assert_int_equal(run_ranks(4, body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bounds_notice_what_is_wrong),
                                     cmocka_unit_test(one_rank), cmocka_unit_test(two_ranks),
                                     cmocka_unit_test(three_ranks), cmocka_unit_test(four_ranks)};
  return cmocka_run_group_tests_name("gpu_reference", tests, NULL, NULL);
}
