/* Random bits, so NaNs, infinities and denormals, at any alignment. The processor decides the bits of a sum
 * of two NaNs, but they must be equal on all ranks and on every path. */
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "reference.h"
#include "traffic.h"

enum { COUNT = 1000, MOST_BYTES = 8 * COUNT + 64, MOST_RANKS = 3 };

typedef struct memory {
  char* plain;
  char* shared;
  char* registered;
  char* all; /* the results of all ranks */
} memory_t;

static void fill_bits(char* bytes, size_t count, uint64_t* state) {
  for (size_t i = 0; i < count; ++i) bytes[i] = (char)(next_random(state) >> 56);
}

/* A bool must be 0 or 1. */
static void fill_pattern(char* data, dsc_dtype_t dtype, uint64_t seed) {
  uint64_t state = seed;
  fill_bits(data, COUNT * element_bytes(dtype), &state);
  for (size_t i = 0; i < COUNT && dtype == DSC_DTYPE_BOOL; ++i) data[i] &= 1;
}

/* All results must equal that of rank 0 on the plain path with offset 0. */
static int check_pattern(rank_t* self, const memory_t* memory, dsc_dtype_t dtype, dsc_op_t op, int offset) {
  const size_t bytes = COUNT * element_bytes(dtype);
  const uint64_t seed = (uint64_t)dtype * 1000 + (uint64_t)op * 100 + (uint64_t)self->rank + 1;
  char* const bases[] = {memory->plain, memory->plain + offset, memory->shared + offset,
                         memory->registered + offset};
  char first[MOST_BYTES];
  for (size_t path = 0; path < sizeof bases / sizeof *bases; ++path) {
    char* send = bases[path];
    char* recv = send + MOST_BYTES;
    fill_pattern(send, dtype, seed);
    CHECK_OK(self, dsc_all_reduce(self->world, send, recv, COUNT, dtype, op, NULL, NULL));
    CHECK_OK(self, dsc_all_gather(self->world, recv, memory->all, bytes, DSC_DTYPE_U8, NULL, NULL));
    if (path == 0) memcpy(first, memory->all, bytes);
    for (int32_t rank = 0; rank < self->size; ++rank)
      if (memcmp(first, memory->all + (size_t)rank * bytes, bytes) != 0)
        FAIL(self, "%s of %s on rank %d, path %zu, offset %d: other bits", dsc_op_name(op),
             dsc_dtype_name(dtype), rank, path, offset);
  }
  return 0;
}

/* The offsets are used in turn. */
static int patterns_body(rank_t* self) {
  void* shared = NULL;
  CHECK_OK(self, dsc_mem_alloc(self->world, 2 * MOST_BYTES + 64, DSC_MEMORY_KIND_HOST, &shared));
  const memory_t memory = {malloc(2 * MOST_BYTES + 64), shared, malloc(2 * MOST_BYTES + 64),
                           malloc(MOST_RANKS * MOST_BYTES)};
  CHECK(self, memory.plain != NULL && memory.registered != NULL && memory.all != NULL);
  const dsc_result_t result = dsc_mem_register(self->world, memory.registered, 2 * MOST_BYTES + 64);
  CHECK(self, result == DSC_OK || result == DSC_ERR_UNSUPPORTED); /* not with the conformance engine */
  int turn = self->rank * 20;
  for (int round = 0; round < (test_scale() > 1 ? 1 : 4); ++round)
    for (dsc_dtype_t dtype = DSC_DTYPE_I8; dtype <= DSC_DTYPE_BOOL; ++dtype)
      for (dsc_op_t op = DSC_OP_SUM; op <= DSC_OP_BXOR; ++op)
        if (op_is_offered(op, dtype)) PASS_ON(check_pattern(self, &memory, dtype, op, 1 + turn++ % 63));
  if (result == DSC_OK) CHECK_OK(self, dsc_mem_unregister(memory.registered));
  free(memory.registered);
  free(memory.plain);
  free(memory.all);
  CHECK_OK(self, dsc_mem_free(shared));
  return 0;
}

static void any_bits(void** state) {
  (void)state;
  for (int32_t size = 2; size <= MOST_RANKS; ++size)
    assert_int_equal(run_ranks(size, patterns_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
