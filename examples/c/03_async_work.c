/*
 * Operations that run while the program computes: pass a work pointer, and wait when the result is needed.
 *
 *   dscrun -n 4 -- ./03_async_work
 */
#include "check.h"

enum { COUNT = 1 << 18, OPERATIONS = 4 };

static double compute_something(void) {
  double sum = 0.0;
  for (int32_t i = 1; i <= 10000000; i++) sum += 1.0 / i;
  return sum;
}

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  int32_t size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_size(world, &size));

  float* buffers[OPERATIONS];
  dsc_work_t* works[OPERATIONS];
  for (int i = 0; i < OPERATIONS; i++) {
    buffers[i] = malloc(COUNT * sizeof(float));
    EXPECT(buffers[i] != NULL);
    for (size_t k = 0; k < COUNT; k++) buffers[i][k] = (float)(rank + i);
    /* Returns immediately. The buffer belongs to the operation until the operation has completed. */
    CHECK(dsc_all_reduce(world, buffers[i], buffers[i], COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL, &works[i]));
  }

  const double harmonic = compute_something(); /* meanwhile a thread of the library computes the sums */

  int32_t completed = 0;
  for (int i = 0; i < OPERATIONS; i++) {
    int32_t done = 0;
    CHECK(dsc_work_test(works[i], &done)); /* tests without waiting */
    completed += done;
  }

  for (int i = OPERATIONS - 1; i >= 0; i--) { /* waiting in any order is fine */
    CHECK(dsc_work_wait(works[i], -1, NULL));
    CHECK(dsc_work_destroy(works[i]));
    const float expected = (float)(size * (size - 1) / 2 + size * i);
    EXPECT(buffers[i][0] == expected && buffers[i][COUNT - 1] == expected);
    free(buffers[i]);
  }
  printf("rank %d: %d of %d all-reduces were complete after the computing (%.3f), now all are\n", rank,
         completed, OPERATIONS, harmonic);

  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
