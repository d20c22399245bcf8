/* User-defined operations: scaled sums, and functions. */
#include <stdio.h>
#include <string.h>

#include "cmocka_c.h"
#include "traffic.h"

enum { MOST = 300000 };

/* Computes sums in f32, as the built-in operation does for this type. */
static int32_t add_floats(void* context, const dsc_op_call_t* call) {
  (void)context;
  const float* from = call->input;
  float* to = call->result;
  if (call->dtype != DSC_DTYPE_F32 || (uintptr_t)from % 4 != 0 || (uintptr_t)to % 4 != 0) return 9;
  for (size_t i = 0; i < call->count; ++i) to[i] += from[i];
  return 0;
}

/* Not commutative: rotates the earlier ranks' bits and mixes in those of the next rank. */
static int32_t turn_and_mix(void* context, const dsc_op_call_t* call) {
  (void)context;
  const uint64_t* from = call->input;
  uint64_t* to = call->result;
  for (size_t i = 0; i < call->count; ++i) to[i] = (to[i] << 1 | to[i] >> 63) ^ from[i];
  return 0;
}

static const size_t counts[] = {1, 100, 5000, 100000, MOST};

static int compare_floats(rank_t* self, const arena_t* arena, operation_t* operation, dsc_op_t custom) {
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
    if (counts[i] > MOST / test_scale()) continue;
    operation->count = counts[i];
    const buffers_t buffers = prepare(arena, operation);
    operation_t special = *operation;
    special.op = custom;
    CHECK_OK(self, call(arena->comm, &special, &buffers, NULL));
    PASS_ON(verify(arena, operation, &buffers)); /* the result must have the bits of the built-in sum */
  }
  return 0;
}

static int sums_body(rank_t* self) {
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, MOST * 4 * (size_t)self->size));
  dsc_op_t op = 0;
  CHECK_OK(self, dsc_op_create_user(add_floats, NULL, 7, 1, &op));
  static const kind_t kinds[] = {ALL_REDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_V};
  for (size_t k = 0; k < 4; ++k)
    for (layout_t layout = PLAIN; layout <= SHARED_IN_PLACE; ++layout) {
      operation_t operation = {
          .kind = kinds[k], .dtype = DSC_DTYPE_F32, .op = DSC_OP_SUM, .layout = layout, .seed = k};
      PASS_ON(compare_floats(self, &arena, &operation, op));
    }
  CHECK_OK(self, dsc_op_destroy(op));
  return arena_close(&arena);
}

static void functions_see_aligned_elements_in_order(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, sums_body, NULL), 0);
}

static int order_body(rank_t* self) {
  enum { COUNT = 40000 };
  static const uint64_t factor = 0x9e3779b97f4a7c15u;
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, COUNT * 8));
  uint64_t* const plain = (uint64_t*)arena.plain;
  uint64_t* const shared = (uint64_t*)arena.shared[0];
  dsc_op_t op = 0;
  CHECK_OK(self, dsc_op_create_user(turn_and_mix, NULL, 8, 0, &op));
  for (int turn = 0; turn < 2; ++turn) {
    uint64_t* data = turn == 0 ? plain : shared;
    for (uint64_t i = 0; i < COUNT; ++i) data[i] = (i + 1) * factor * (uint64_t)(self->rank + 1);
    CHECK_OK(self, dsc_all_reduce(self->world, data, data, COUNT, DSC_DTYPE_U64, op, NULL, NULL));
    for (uint64_t i = 0; i < COUNT; ++i) {
      uint64_t expected = (i + 1) * factor;
      for (uint64_t r = 1; r < (uint64_t)self->size; ++r)
        expected = (expected << 1 | expected >> 63) ^ ((i + 1) * factor * (r + 1));
      CHECK(self, data[i] == expected);
    }
  }
  CHECK_OK(self, dsc_op_destroy(op));
  return arena_close(&arena);
}

static void order_of_ranks_is_kept(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 4; ++size) assert_int_equal(run_ranks(size, order_body, NULL), 0);
}

static int premul_body(rank_t* self) {
  enum { COUNT = 3000 };
  float data[COUNT];
  dsc_op_t op = 0;
  CHECK_OK(self, dsc_op_create_premul(0.25, &op));
  for (int i = 0; i < COUNT; ++i) data[i] = (float)(i + self->rank);
  CHECK_OK(self, dsc_all_reduce(self->world, data, data, COUNT, DSC_DTYPE_F32, op, NULL, NULL));
  for (int i = 0; i < COUNT; ++i) {
    float expected = 0;
    for (int32_t r = 0; r < self->size; ++r) expected += 0.25f * (float)(i + r);
    CHECK(self, data[i] == expected);
  }
  return dsc_op_destroy(op) == DSC_OK ? 0 : 1;
}

static void premul_scales_every_input(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, premul_body, NULL), 0);
}

static int scale_body(rank_t* self) {
  static const double unfit[] = {1e300, -1e39, 1e-50};
  float narrow = 1;
  double wide = 1;
  for (size_t i = 0; i < 3; ++i) {
    dsc_op_t op = 0;
    CHECK_OK(self, dsc_op_create_premul(unfit[i], &op));
    CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
                 dsc_all_reduce(self->world, &narrow, &narrow, 1, DSC_DTYPE_F32, op, NULL, NULL));
    wide = 1;
    CHECK_OK(self, dsc_all_reduce(self->world, &wide, &wide, 1, DSC_DTYPE_F64, op, NULL, NULL));
    CHECK(self, wide == unfit[i] * self->size);
    CHECK_OK(self, dsc_op_destroy(op));
  }
  return 0;
}

static void scales_must_fit_the_type(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, scale_body, NULL), 0);
}

static int32_t fail_late(void* context, const dsc_op_call_t* call) {
  snprintf(call->error, call->error_capacity, "code %d", *(const int32_t*)context);
  return *(const int32_t*)context;
}

/* The function fails on the rank that runs it, and all ranks get the error. */
static int failing_body(rank_t* self) {
  static const int32_t code = 3;
  float data[100] = {0};
  dsc_op_t op = 0;
  CHECK_OK(self, dsc_op_create_user(fail_late, (void*)&code, 1, 1, &op));
  CHECK_RESULT(self, DSC_ERR_CALLBACK,
               dsc_all_reduce(self->world, data, data, 100, DSC_DTYPE_F32, op, NULL, NULL));
  CHECK(self, strstr(dsc_last_error_message(), "user operation 1 returned 3: code 3") != NULL);
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_barrier(self->world, NULL, NULL));
  return 0;
}

static int32_t call_back(void* context, const dsc_op_call_t* call) {
  (void)call;
  return dsc_barrier(context, NULL, NULL) == DSC_ERR_REENTRANT ? 0 : 4;
}

static int reentrant_body(rank_t* self) {
  float data[100] = {0};
  dsc_op_t op = 0;
  CHECK_OK(self, dsc_op_create_user(call_back, self->world, 1, 1, &op));
  CHECK_OK(self, dsc_all_reduce(self->world, data, data, 100, DSC_DTYPE_F32, op, NULL, NULL));
  return 0;
}

static void what_functions_may_not(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 3; ++size) {
    assert_int_equal(run_ranks(size, failing_body, NULL), 0);
    assert_int_equal(run_ranks(size, reentrant_body, NULL), 0);
  }
}

static int differ_body(rank_t* self) {
  const bool premul = *(const bool*)self->arg;
  float data[100] = {0};
  dsc_op_t op = 0;
  if (premul)
    CHECK_OK(self, dsc_op_create_premul(self->rank == 1 ? 0.5 : 0.25, &op));
  else
    CHECK_OK(self, dsc_op_create_user(add_floats, NULL, self->rank == 1 ? 5 : 4, 1, &op));
  CHECK_RESULT(self, DSC_ERR_MISMATCH,
               dsc_all_reduce(self->world, data, data, 100, DSC_DTYPE_F32, op, NULL, NULL));
  const char* text = dsc_last_error_message();
  CHECK(self, strstr(text, premul ? "inputs times 0.5" : "user operation 5") != NULL);
  return 0;
}

static void scales_and_ids_must_agree(void** state) {
  (void)state;
  for (int premul = 0; premul < 2; ++premul) {
    const bool arg = premul != 0;
    assert_int_equal(run_ranks(3, differ_body, &arg), 0);
  }
}

static int swapped_body(rank_t* self) {
  float data[4] = {0};
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
               dsc_all_reduce(self->world, data, data, 4, DSC_OP_SUM, DSC_DTYPE_F32, NULL, NULL));
  CHECK(self, strstr(dsc_last_error_message(), "dtype is 101, which is the operation sum") != NULL);
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
               dsc_all_reduce(self->world, data, data, 4, DSC_DTYPE_F32, DSC_DTYPE_F32, NULL, NULL));
  CHECK(self, strstr(dsc_last_error_message(), "op is 8, expected 101 (sum)") != NULL);
  return 0;
}

static void a_type_is_no_operation(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, swapped_body, NULL), 0);
}

/* A group of one rank gives the same bits as several ranks, in place and out of place. */
static int bits_body(rank_t* self) {
  for (int in_place = 0; in_place < 2; ++in_place) {
    uint8_t flags[4] = {7, 0, 255, 1}, results[4] = {0};
    uint8_t* target = in_place ? flags : results;
    CHECK_OK(self, dsc_all_reduce(self->world, flags, target, 4, DSC_DTYPE_BOOL, DSC_OP_SUM, NULL, NULL));
    CHECK(self, target[0] == 1 && target[1] == 0 && target[2] == 1 && target[3] == 1);
    uint32_t nan = 0xffc12345, result = 0; /* a negative NaN with a payload */
    uint32_t* sum = in_place ? &nan : &result;
    CHECK_OK(self, dsc_all_reduce(self->world, &nan, sum, 1, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
    CHECK(self, *sum == 0x7fc00000);
  }
  return 0;
}

static int alone_body(rank_t* self) {
  uint32_t nan = 0x7fc00000, result = 0;
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_FAIL));
  CHECK_OK(self, dsc_all_reduce(self->world, &nan, &result, 1, DSC_DTYPE_F32, DSC_OP_SUM, NULL, &work));
  CHECK_RESULT(self, DSC_ERR_NONFINITE, dsc_work_wait(work, -1, NULL));
  CHECK(self, strstr(dsc_last_error_message(),
                     "collective 2 (all_reduce) of group \"world\" on rank 0 of 1: ") != NULL);
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_work_error_info(work, &info));
  CHECK(self, info.code == DSC_ERR_NONFINITE && info.rank == 0 && info.sequence == 2);
  return dsc_work_destroy(work) == DSC_OK ? 0 : 1;
}

static void one_rank_is_like_several(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, bits_body, NULL), 0);
  assert_int_equal(run_ranks(1, alone_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions_see_aligned_elements_in_order),
      cmocka_unit_test(order_of_ranks_is_kept),
      cmocka_unit_test(premul_scales_every_input),
      cmocka_unit_test(what_functions_may_not),
      cmocka_unit_test(scales_and_ids_must_agree),
      cmocka_unit_test(scales_must_fit_the_type),
      cmocka_unit_test(a_type_is_no_operation),
      cmocka_unit_test(one_rank_is_like_several),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
