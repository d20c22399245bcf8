/* Reductions of lists of tensors: the results equal those of one reduction per tensor. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "ranks.h"
#include "reference.h"

enum { TENSORS = 6, MOST = 5000 };

static const size_t counts[TENSORS] = {3, MOST, 0, 1, 700, 33};
static const dsc_dtype_t dtypes[TENSORS] = {DSC_DTYPE_F32, DSC_DTYPE_F64, DSC_DTYPE_F32,
                                            DSC_DTYPE_I32, DSC_DTYPE_F32, DSC_DTYPE_BF16};

typedef struct list {
  dsc_tensor_t tensors[TENSORS];
  double data[TENSORS][MOST]; /* raw memory for any type */
} list_t;

static void set_element(void* data, size_t i, dsc_dtype_t dtype, double value) {
  const float f32 = (float)value;
  uint32_t bits;
  memcpy(&bits, &f32, sizeof bits);
  if (dtype == DSC_DTYPE_F64) ((double*)data)[i] = value;
  if (dtype == DSC_DTYPE_F32) ((float*)data)[i] = f32;
  if (dtype == DSC_DTYPE_I32) ((int32_t*)data)[i] = (int32_t)value;
  if (dtype == DSC_DTYPE_BF16)
    ((uint16_t*)data)[i] = (uint16_t)(bits >> 16); /* small whole numbers are exact in bf16 */
}

static void fill(list_t* list, const rank_t* self) {
  memset(list, 0, sizeof *list);
  for (int t = 0; t < TENSORS; ++t) {
    list->tensors[t] = (dsc_tensor_t){.struct_size = sizeof(dsc_tensor_t),
                                      .data = list->data[t],
                                      .count = counts[t],
                                      .dtype = dtypes[t],
                                      .device = -1};
    for (size_t i = 0; i < counts[t]; ++i)
      set_element(list->data[t], i, dtypes[t], (double)((i + 3 * (size_t)t) % 7) + self->rank);
  }
}

/* Compares the list with one dsc_all_reduce() per tensor. */
static int check_list(rank_t* self, list_t* list, list_t* expected, dsc_op_t op) {
  fill(expected, self);
  for (int t = 0; t < TENSORS; ++t) {
    CHECK_OK(self, dsc_all_reduce(self->world, expected->data[t], expected->data[t], counts[t], dtypes[t], op,
                                  NULL, NULL));
    if (memcmp(list->data[t], expected->data[t], sizeof list->data[t]) != 0)
      FAIL(self, "tensor %d, op %d: other elements, the first is %g, expected %g", t, op,
           load_real(list->data[t], 0, dtypes[t]), load_real(expected->data[t], 0, dtypes[t]));
  }
  return 0;
}

static int equal_body(rank_t* self) {
  list_t *list = malloc(sizeof *list), *expected = malloc(sizeof *expected);
  static const dsc_op_t ops[] = {DSC_OP_SUM, DSC_OP_MAX, DSC_OP_PROD};
  static const size_t buffer_bytes[] = {0, 1, 4000, SIZE_MAX};
  for (size_t o = 0; o < sizeof ops / sizeof *ops; ++o)
    for (size_t b = 0; b < sizeof buffer_bytes / sizeof *buffer_bytes; ++b) {
      fill(list, self);
      CHECK_OK(self, dsc_all_reduce_coalesced(self->world, list->tensors, TENSORS, ops[o], buffer_bytes[b]));
      PASS_ON(check_list(self, list, expected, ops[o]));
    }
  CHECK_OK(self, dsc_all_reduce_coalesced(self->world, NULL, 0, DSC_OP_SUM, 0));
  free(list), free(expected);
  return 0;
}

static void one_reduction_per_tensor(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, equal_body, NULL), 0);
}

/* A reduction that scales changes the elements even in a group of one rank. */
static int scaled_body(rank_t* self) {
  float x = 3, y = 5;
  dsc_tensor_t tensors[] = {
      {.struct_size = sizeof(dsc_tensor_t), .data = &x, .count = 1, .dtype = DSC_DTYPE_F32},
      {.struct_size = sizeof(dsc_tensor_t), .data = &y, .count = 1, .dtype = DSC_DTYPE_F32}};
  tensors[0].device = tensors[1].device = -1;
  dsc_op_t half = 0;
  CHECK_OK(self, dsc_op_create_premul(0.5, &half));
  CHECK_OK(self, dsc_all_reduce_coalesced(self->world, tensors, 2, half, 0));
  CHECK(self, x == 1.5F * (float)self->size && y == 2.5F * (float)self->size);
  CHECK_OK(self, dsc_op_destroy(half));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED, dsc_all_reduce_coalesced(self->world, tensors, 2, DSC_OP_BAND, 0));
  CHECK(self, x == 1.5F * (float)self->size); /* refused before any data was sent */
  return 0;
}

static void scaled_sums(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, scaled_body, NULL), 0);
}

/* Lists with equal totals but different counts do not match, and nothing is written. */
static int other_counts_body(rank_t* self) {
  list_t* list = malloc(sizeof *list);
  fill(list, self);
  const size_t shift = self->rank == 1 ? 1 : 0;
  dsc_tensor_t two[] = {list->tensors[0], list->tensors[4]};
  two[0].count = 30 + shift, two[1].count = 70 - shift;
  CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_all_reduce_coalesced(self->world, two, 2, DSC_OP_SUM, 0));
  CHECK(self, strstr(dsc_last_error_message(), "[0]: 30, [1]: 70") &&
                  strstr(dsc_last_error_message(), "[0]: 31, [1]: 69"));
  two[0].struct_size = 8;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_all_reduce_coalesced(self->world, two, 1, DSC_OP_SUM, 0));
  CHECK(self, strstr(dsc_last_error_message(), "tensors[0].struct_size is 8"));
  list_t* before = malloc(sizeof *before);
  fill(before, self);
  CHECK(self, memcmp(before->data, list->data, sizeof list->data) == 0);
  free(list), free(before);
  return 0;
}

static void other_counts_are_a_mismatch(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, other_counts_body, NULL), 0);
}

/* How the list of rank 1 differs. The first buffers of all ranks are equal, so only the whole list shows the
 * difference. */
enum { LATER_TYPE, LATER_PACKING, SHORTER, EMPTY, LIST_CASES };

static int other_lists_body(rank_t* self) {
  const int which = *(const int*)self->arg;
  float data[3] = {1, 1, 1};
  dsc_tensor_t list[3] = {{0}};
  for (int t = 0; t < 3; ++t)
    list[t] = (dsc_tensor_t){
        .struct_size = sizeof *list, .data = &data[t], .count = 1, .dtype = DSC_DTYPE_F32, .device = -1};
  size_t count = 3, buffer_bytes = which == LATER_PACKING ? 8 : 4;
  if (self->rank == 1 && which == LATER_TYPE) list[2].dtype = DSC_DTYPE_I32;
  if (self->rank == 1 && which == SHORTER) count = 2;
  if (self->rank == 1 && which == EMPTY) count = 0;
  if (which == LATER_PACKING) list[0].count = 2, list[0].data = data + 1, list[1].data = data, count = 2;
  if (self->rank == 1 && which == LATER_PACKING) buffer_bytes = SIZE_MAX;
  CHECK_RESULT(self, DSC_ERR_MISMATCH,
               dsc_all_reduce_coalesced(self->world, list, count, DSC_OP_SUM, buffer_bytes));
  const char* text = dsc_last_error_message();
  if (which == LATER_TYPE)
    CHECK(self, strstr(text, "3 tensors, [0]: 1); rank 1 differs in arguments that are not"));
  if (which == SHORTER)
    CHECK(self, strstr(text, "3 tensors, [0]: 1); rank 1: ") && strstr(text, "2 tensors, [0]: 1"));
  if (which == EMPTY) CHECK(self, strstr(text, "rank 1: all_reduce(sum, u8, 0, 0 tensors)"));
  for (int t = 0; t < 3; ++t) CHECK(self, data[t] == 1);
  return 0;
}

static void other_lists_are_a_mismatch(void** state) {
  (void)state;
  for (int which = 0; which < LIST_CASES; ++which)
    assert_int_equal(run_ranks(3, other_lists_body, &which), 0);
}

/* A list that is empty on all ranks is an operation, too. */
static int empty_body(rank_t* self) {
  CHECK_OK(self, dsc_all_reduce_coalesced(self->world, NULL, 0, DSC_OP_SUM, 0));
  CHECK_OK(self, dsc_broadcast_coalesced(self->world, NULL, 0, 0, 0));
  CHECK_RESULT(self, DSC_ERR_MISMATCH,
               self->rank == 1 ? dsc_barrier(self->world, NULL, NULL)
                               : dsc_broadcast_coalesced(self->world, NULL, 0, 0, 0));
  CHECK(self, strstr(dsc_last_error_message(), "broadcast(root 0, u8, 0, 0 tensors); rank 1: barrier()"));
  return 0;
}

static void empty_lists_meet(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, empty_body, NULL), 0);
}

/* Non-finite inputs are reported after all tensors are reduced, whichever buffer contains them. */
static int nonfinite_body(rank_t* self) {
  for (size_t buffer_bytes = 4; buffer_bytes <= 4096; buffer_bytes += 4092) {
    float data[3][2] = {{1, 1}, {self->rank == 1 ? NAN : 9, 2}, {3, 3}};
    dsc_tensor_t tensors[3] = {{0}};
    for (int t = 0; t < 3; ++t)
      tensors[t] = (dsc_tensor_t){
          .struct_size = sizeof *tensors, .data = data[t], .count = 2, .dtype = DSC_DTYPE_F32, .device = -1};
    CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_FAIL));
    CHECK_RESULT(self, DSC_ERR_NONFINITE,
                 dsc_all_reduce_coalesced(self->world, tensors, 3, DSC_OP_SUM, buffer_bytes));
    CHECK(self, data[0][1] == 2 && isnan(data[1][0]) && data[1][1] == 4 && data[2][0] == 6);
  }
  return 0;
}

static void nonfinite_inputs(void** state) {
  (void)state;
  if (ranks_are_on_several_hosts()) skip(); /* between hosts the check is not available */
  assert_int_equal(run_ranks(2, nonfinite_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_reduction_per_tensor),    cmocka_unit_test(scaled_sums),
      cmocka_unit_test(other_lists_are_a_mismatch),  cmocka_unit_test(empty_lists_meet),
      cmocka_unit_test(other_counts_are_a_mismatch), cmocka_unit_test(nonfinite_inputs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
