/* NaN and infinity in the inputs are found on every path, and all ranks get the same report. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "traffic.h"

enum { MOST = 200000 };

typedef struct spot {
  int32_t rank;
  size_t index; /* index in the send buffer */
  float value;
} spot_t;

static void poison(const arena_t* arena, const buffers_t* buffers, const spot_t* spots, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if (spots[i].rank == arena->rank) memcpy(buffers->send + 4 * spots[i].index, &spots[i].value, 4);
}

static int expect_found(rank_t* self, dsc_comm_t* comm, uint64_t elements, int32_t rank, size_t index,
                        const char* operation) {
  dsc_nonfinite_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_comm_nonfinite_info(comm, 1, &info));
  if (info.elements != elements || info.rank != rank || info.index != index ||
      strcmp(info.operation, operation) != 0)
    FAIL(self, "%s: expected %zu elements, first of rank %d at %zu; came %zu, rank %d at %zu (%s)", operation,
         (size_t)elements, rank, index, (size_t)info.elements, info.rank, (size_t)info.index, info.operation);
  CHECK_OK(self, dsc_comm_nonfinite_info(comm, 0, &info));
  CHECK(self, info.elements == 0 && info.operations == 0 && info.rank == -1);
  return 0;
}

/* Checks what the last error, of a failed call, reports. */
static int expect_told(rank_t* self, int32_t rank, size_t index, const char* operation) {
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_last_error_info(&info));
  if (info.code != DSC_ERR_NONFINITE || info.rank != rank || info.index != index || info.n_ranks != 1 ||
      info.ranks[0] != rank || info.sequence == 0 || strcmp(info.operation, operation) != 0)
    FAIL(self, "%s: expected rank %d at %zu; came %s, rank %d at %zu (%s)", operation, rank, index,
         dsc_result_name(info.code), info.rank, (size_t)info.index, info.operation);
  return 0;
}

static int check_one(rank_t* self, const arena_t* arena, const operation_t* operation, bool fails) {
  const size_t all =
      operation->kind == REDUCE_SCATTER ? operation->count * (size_t)arena->size : operation->count;
  const int32_t last = arena->size - 1;
  const spot_t spots[] = {{last, 0, INFINITY}, {last / 2, all - 1, NAN}, {last / 2, all / 2, -INFINITY}};
  const buffers_t buffers = prepare(arena, operation);
  poison(arena, &buffers, spots, 3);
  const dsc_result_t result = call(arena->comm, operation, &buffers, NULL);
  CHECK(self, result == (fails ? DSC_ERR_NONFINITE : DSC_OK));
  const bool first_is_zero = last / 2 == last;
  if (fails && !first_is_zero)
    CHECK(self, strstr(dsc_last_error_message(), "over all ranks, 3 elements are") != NULL);
  if (fails) PASS_ON(expect_told(self, last / 2, first_is_zero ? 0 : all / 2, kind_name(operation->kind)));
  PASS_ON(
      expect_found(self, arena->comm, 3, last / 2, first_is_zero ? 0 : all / 2, kind_name(operation->kind)));
  const operation_t after = {.kind = ALL_REDUCE, .dtype = DSC_DTYPE_F32, .op = DSC_OP_SUM, .count = 9};
  /* the communicator still works, and finds nothing in finite inputs */
  return check_operation(arena, &after);
}

static int paths_body(rank_t* self) {
  static const size_t counts[] = {64, 3000, 60000, MOST};
  static const kind_t kinds[] = {ALL_REDUCE, REDUCE, REDUCE_SCATTER};
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, MOST * 4 * (size_t)self->size));
  for (int32_t mode = DSC_NONFINITE_CHECK_COUNT; mode <= DSC_NONFINITE_CHECK_FAIL; ++mode) {
    CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, mode));
    for (size_t k = 0; k < 3; ++k)
      for (size_t i = 0; i < 4 && counts[i] <= MOST / test_scale(); ++i)
        for (layout_t layout = PLAIN; layout <= SHARED_IN_PLACE; ++layout) {
          const operation_t operation = {.kind = kinds[k],
                                         .dtype = DSC_DTYPE_F32,
                                         .op = i % 2 == 0 ? DSC_OP_SUM : DSC_OP_MIN,
                                         .count = counts[i],
                                         .root = self->size - 1,
                                         .layout = layout};
          PASS_ON(check_one(self, &arena, &operation, mode == DSC_NONFINITE_CHECK_FAIL));
        }
  }
  return arena_close(&arena);
}

static void every_path_finds_them(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, paths_body, NULL), 0);
}

/* With the check off they pass through. Integers cannot be non-finite. Groups inherit the check from their
 * parent. */
static int scope_body(rank_t* self) {
  float value = self->rank == 0 ? INFINITY : 1;
  CHECK_OK(self, dsc_all_reduce(self->world, &value, &value, 1, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
  CHECK(self, isinf(value));
  PASS_ON(expect_found(self, self->world, 0, -1, 0, ""));
  CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_FAIL));
  dsc_comm_t* group = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  int32_t bits = 0x7fc00000;
  CHECK_OK(self, dsc_all_reduce(group, &bits, &bits, 1, DSC_DTYPE_I32, DSC_OP_MAX, NULL, NULL));
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_all_reduce(group, &value, &value, 1, DSC_DTYPE_F32, DSC_OP_SUM, NULL, &work));
  CHECK_RESULT(self, DSC_ERR_NONFINITE, dsc_work_wait(work, -1, NULL));
  PASS_ON(expect_told(self, 0, 0, "all_reduce"));
  for (int with_work = 0; with_work < 2; ++with_work) {
    dsc_work_t* all = NULL;
    CHECK_OK(self, dsc_batch_begin(group));
    CHECK_OK(self, dsc_barrier(group, NULL, NULL));
    CHECK_OK(self, dsc_all_reduce(group, &value, &value, 1, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
    const dsc_result_t ended = dsc_batch_end(group, NULL, with_work ? &all : NULL);
    CHECK(self, with_work ? ended == DSC_OK : ended == DSC_ERR_NONFINITE);
    if (with_work) CHECK_RESULT(self, DSC_ERR_NONFINITE, dsc_work_wait(all, -1, NULL));
    PASS_ON(expect_told(self, 0, 0, "all_reduce"));
    CHECK_OK(self, dsc_work_destroy(all));
  }
  CHECK_OK(self, dsc_work_destroy(work));
  PASS_ON(expect_found(self, group, 3 * (uint64_t)self->size, 0, 0, "all_reduce"));
  PASS_ON(expect_found(self, self->world, 0, -1, 0, ""));
  return dsc_comm_destroy(group) == DSC_OK ? 0 : 1;
}

static void what_is_looked_at(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, scope_body, NULL), 0);
}

/* The first operation of a batch fails early. After the failure is reported, the caller may free the buffers
 * of all operations. */
static int batch_body(rank_t* self) {
  enum { LARGE = 24 << 20 };
  const size_t count = LARGE / test_scale();
  float value = NAN;
  float* const data = malloc(count * sizeof *data);
  CHECK(self, data != NULL);
  for (size_t i = 0; i < count; ++i) data[i] = 1;
  CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_FAIL));
  dsc_work_t* all = NULL;
  CHECK_OK(self, dsc_batch_begin(self->world));
  CHECK_OK(self, dsc_all_reduce(self->world, &value, &value, 1, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
  CHECK_OK(self, dsc_all_reduce(self->world, data, data, count, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
  CHECK_OK(self, dsc_batch_end(self->world, NULL, &all));
  dsc_result_t waited = DSC_IN_PROGRESS;
  while (waited == DSC_IN_PROGRESS) /* the failure must not be reported before all operations have ended */
    waited = dsc_work_wait(all, 1, NULL);
  CHECK(self, waited == DSC_ERR_NONFINITE);
  int32_t done = 0;
  CHECK_OK(self, dsc_work_test(all, &done));
  CHECK(self, done == 1 && data[count - 1] == (float)self->size);
  CHECK_OK(self, dsc_work_destroy(all));
  free(data);
  return 0;
}

static void a_batch_is_over_when_its_failure_is_told(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, batch_body, NULL), 0);
}

static int differ_body(rank_t* self) {
  float value = 1;
  if (self->rank == 1) CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_COUNT));
  CHECK_RESULT(self, DSC_ERR_MISMATCH,
               dsc_all_reduce(self->world, &value, &value, 1, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
  CHECK(self, strstr(dsc_last_error_message(), "non-finite inputs are counted") != NULL);
  return 0;
}

static void ranks_must_ask_alike(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, differ_body, NULL), 0);
}

/* The reducer names the parameter, writes no gradient, and works in the next iteration. */
static int reducer_body(rank_t* self) {
  static const char* const names[] = {"weight", "bias"};
  float values[2][50] = {{0}}, grads[2][50];
  dsc_tensor_t params[2] = {{0}};
  for (int i = 0; i < 2; ++i) {
    params[i].struct_size = sizeof params[i];
    params[i].data = values[i];
    params[i].count = 50;
    params[i].dtype = DSC_DTYPE_F32;
    params[i].name = names[i];
    params[i].device = -1;
  }
  dsc_bucket_reducer_options_t options;
  dsc_bucket_reducer_options_init(&options, sizeof options);
  dsc_bucket_reducer_t* reducer = NULL;
  CHECK_OK(self, dsc_bucket_reducer_create(self->world, params, 2, &options, &reducer));
  CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_FAIL));
  for (int iteration = 0; iteration < 3; ++iteration) {
    CHECK_OK(self, dsc_bucket_reducer_begin(reducer, NULL));
    for (int i = 1; i >= 0; --i) {
      for (int k = 0; k < 50; ++k) grads[i][k] = (float)self->size;
      if (iteration == 1 && i == 0 && self->rank == self->size - 1) grads[i][33] = NAN;
      CHECK_OK(self, dsc_bucket_reducer_mark_ready(reducer, (size_t)i, grads[i], NULL));
    }
    if (iteration != 1) {
      CHECK_OK(self, dsc_bucket_reducer_finish(reducer, NULL));
      CHECK(self, grads[0][33] == (float)self->size && grads[1][0] == (float)self->size);
      continue;
    }
    CHECK_RESULT(self, DSC_ERR_NONFINITE, dsc_bucket_reducer_finish(reducer, NULL));
    if (strstr(dsc_last_error_message(), "weight") == NULL ||
        strstr(dsc_last_error_message(), "element 33") == NULL)
      FAIL(self, "the parameter is not named: %s", dsc_last_error_message());
    PASS_ON(expect_told(self, self->size - 1, 33, "all_reduce"));
    CHECK(self, grads[1][0] == (float)self->size);
    dsc_nonfinite_info_t info = {.struct_size = sizeof info};
    CHECK_OK(self, dsc_comm_nonfinite_info(self->world, 1, &info));
    CHECK(self, info.elements == 1 && info.rank == self->size - 1);
  }
  return dsc_bucket_reducer_destroy(reducer) == DSC_OK ? 0 : 1;
}

static void a_reducer_names_the_parameter(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, reducer_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_path_finds_them),
      cmocka_unit_test(what_is_looked_at),
      cmocka_unit_test(a_batch_is_over_when_its_failure_is_told),
      cmocka_unit_test(ranks_must_ask_alike),
      cmocka_unit_test(a_reducer_names_the_parameter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
