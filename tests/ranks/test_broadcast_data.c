/* Named tensors of one rank are sent to all ranks: first the shapes, then all data in one broadcast. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "ranks.h"

enum { KEYS = 4, DIMS = 16, WIDE = 3000 };

static const char* const keys[KEYS] = {"text", "mask", "scalar", "deep"};

/* Shapes of the batch: many elements, no elements, a scalar, and the largest number of dimensions. */
static const int64_t sizes[KEYS][DIMS] = {
    {2, WIDE}, {4, 0, 3}, {0}, {1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3}};
static const int32_t ndims[KEYS] = {2, 3, 0, DIMS};

static size_t count_of(int k) {
  size_t count = 1;
  for (int32_t d = 0; d < ndims[k]; ++d) count *= (size_t)sizes[k][d];
  return count;
}

typedef struct batch {
  dsc_tensor_t tensors[KEYS];
  int64_t shapes[KEYS * DIMS];
  int64_t* data[KEYS];
} batch_t;

static int64_t value(int k, size_t i) { return (int64_t)(1000000 * (k + 1)) + (int64_t)i; }

/* The root's tensors are complete. On the other ranks only their names are set. */
static int make_batch(rank_t* self, batch_t* batch, bool is_root) {
  memset(batch, 0, sizeof *batch);
  for (int k = 0; k < KEYS; ++k) {
    batch->tensors[k] = (dsc_tensor_t){.struct_size = sizeof(dsc_tensor_t), .name = keys[k], .device = -1};
    if (!is_root) continue;
    const size_t count = count_of(k);
    batch->data[k] = calloc(count + 1, sizeof(int64_t));
    CHECK(self, batch->data[k] != NULL);
    for (size_t i = 0; i < count; ++i) batch->data[k][i] = value(k, i);
    batch->tensors[k].data = batch->data[k];
    batch->tensors[k].count = count;
    batch->tensors[k].dtype = DSC_DTYPE_I64;
    batch->tensors[k].shape = sizes[k];
    batch->tensors[k].ndim = ndims[k];
  }
  return 0;
}

static void free_batch(batch_t* batch) {
  for (int k = 0; k < KEYS; ++k) free(batch->data[k]);
}

/* Allocates all tensors in one block, in the layout that avoids a copy, or each tensor separately. */
static int allocate(rank_t* self, batch_t* batch, bool in_one_block) {
  size_t total = 1;
  for (int k = 0; k < KEYS; ++k) total += batch->tensors[k].count;
  int64_t* block = in_one_block ? calloc(total, sizeof *block) : NULL;
  if (in_one_block) CHECK(self, (batch->data[0] = block) != NULL);
  for (int k = 0; k < KEYS; ++k) {
    if (!in_one_block)
      CHECK(self, (batch->data[k] = calloc(batch->tensors[k].count + 1, sizeof(int64_t))) != NULL);
    batch->tensors[k].data = in_one_block ? block : batch->data[k];
    if (in_one_block) block += batch->tensors[k].count;
  }
  return 0;
}

static int check_batch(rank_t* self, const batch_t* batch) {
  for (int k = 0; k < KEYS; ++k) {
    const dsc_tensor_t* it = &batch->tensors[k];
    CHECK(self, it->dtype == DSC_DTYPE_I64 && it->count == count_of(k) && it->ndim == ndims[k]);
    CHECK(self, memcmp(it->shape, sizes[k], (size_t)ndims[k] * sizeof *it->shape) == 0);
    for (size_t i = 0; i < it->count; ++i)
      if (((int64_t*)it->data)[i] != value(k, i))
        FAIL(self, "element %zu of %s is %lld", i, keys[k], (long long)((int64_t*)it->data)[i]);
  }
  return 0;
}

static int sends_from(rank_t* self, int32_t root, bool in_one_block) {
  const bool is_root = self->rank == root;
  batch_t batch;
  PASS_ON(make_batch(self, &batch, is_root));
  CHECK_OK(self, dsc_broadcast_shapes(self->world, batch.tensors, KEYS, DSC_DTYPE_I64, root,
                                      is_root ? NULL : batch.shapes));
  if (!is_root) PASS_ON(allocate(self, &batch, in_one_block));
  CHECK_OK(self, dsc_broadcast_coalesced(self->world, batch.tensors, KEYS, root, SIZE_MAX));
  PASS_ON(check_batch(self, &batch));
  free_batch(&batch);
  return 0;
}

static int batch_body(rank_t* self) {
  PASS_ON(sends_from(self, 0, false));
  PASS_ON(sends_from(self, self->size - 1, true));
  CHECK_OK(self, dsc_broadcast_shapes(self->world, NULL, 0, DSC_DTYPE_F32, 0, NULL));
  return 0;
}

static void a_batch_reaches_all_ranks(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; size *= 2) assert_int_equal(run_ranks(size, batch_body, NULL), 0);
}

/* All ranks get the same error if the root's batch is incomplete, and the communicator still works. */
static int expect_refusal(rank_t* self, batch_t* batch, const char* text) {
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
               dsc_broadcast_shapes(self->world, batch->tensors, KEYS, DSC_DTYPE_I64, 1, batch->shapes));
  if (strstr(dsc_last_error_message(), text) == NULL)
    FAIL(self, "the message is \"%s\", expected \"%s\" in it", dsc_last_error_message(), text);
  return 0;
}

static int refusals_body(rank_t* self) {
  const bool is_root = self->rank == 1;
  batch_t batch;
  PASS_ON(make_batch(self, &batch, is_root));
  if (is_root) batch.tensors[1].dtype = DSC_DTYPE_F32;
  PASS_ON(expect_refusal(self, &batch, "rank 1: key 'mask' is f32 [4, 0, 3], expected elements of i64"));
  if (is_root) batch.tensors[1].dtype = 0;
  PASS_ON(expect_refusal(self, &batch, "rank 1: key 'mask' has no tensor, expected a tensor of i64"));
  if (is_root) batch.tensors[1].dtype = DSC_DTYPE_I64, batch.tensors[3].ndim = DIMS + 1;
  PASS_ON(expect_refusal(self, &batch, "rank 1: key 'deep' has 17 dimensions, expected at most 16"));
  if (is_root) batch.tensors[3].ndim = DIMS, batch.tensors[0].data = NULL;
  PASS_ON(expect_refusal(self, &batch, "rank 1: text (index 0): data is NULL"));
  free_batch(&batch);
  return sends_from(self, 1, false);
}

static void what_the_root_lacks_fails_on_all_ranks(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, refusals_body, NULL), 0);
  assert_int_equal(run_ranks(4, refusals_body, NULL), 0);
}

static int mismatch(rank_t* self, batch_t* batch, size_t n, dsc_dtype_t dtype, const char* text) {
  CHECK_RESULT(self, DSC_ERR_MISMATCH,
               dsc_broadcast_shapes(self->world, batch->tensors, n, dtype, 0, batch->shapes));
  if (strstr(dsc_last_error_message(), text) == NULL)
    FAIL(self, "the message is \"%s\", expected \"%s\" in it", dsc_last_error_message(), text);
  return 0;
}

static int mismatches_body(rank_t* self) {
  const bool is_last = self->rank == self->size - 1;
  batch_t batch;
  char text[64];
  PASS_ON(make_batch(self, &batch, self->rank == 0));
  if (is_last) batch.tensors[1].name = "labels";
  snprintf(text, sizeof text, "key 1 is 'mask' on rank 0 and 'labels' on rank %d", self->size - 1);
  PASS_ON(mismatch(self, &batch, KEYS, DSC_DTYPE_I64, text));
  batch.tensors[1].name = keys[1];
  snprintf(text, sizeof text, "key 3 is 'deep' on rank 0 and missing on rank %d", self->size - 1);
  PASS_ON(mismatch(self, &batch, is_last ? KEYS - 1 : KEYS, DSC_DTYPE_I64, text));
  snprintf(text, sizeof text, "dtype is i64 on rank 0 and i32 on rank %d", self->size - 1);
  PASS_ON(mismatch(self, &batch, KEYS, is_last ? DSC_DTYPE_I32 : DSC_DTYPE_I64, text));
  free_batch(&batch);
  return sends_from(self, 0, false);
}

static void different_keys_are_named(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, mismatches_body, NULL), 0);
  assert_int_equal(run_ranks(4, mismatches_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_batch_reaches_all_ranks),
      cmocka_unit_test(what_the_root_lacks_fails_on_all_ranks),
      cmocka_unit_test(different_keys_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
