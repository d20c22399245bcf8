/*
 * Zero-copy memory: all ranks of a host can access memory from dsc_mem_alloc(), so operations on it need no
 * intermediate copies.
 *
 *   dscrun -n 4 -- ./05_zero_copy
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include <time.h>

#include "check.h"

enum { COUNT = 1 << 20, ROUNDS = 20 };

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Fills the buffer with rank + 1 and sums it over all ranks, several times. Returns the mean time. */
static double time_all_reduce(dsc_comm_t* world, float* buffer, int32_t rank, float expected) {
  double spent_ms = 0.0;
  for (int round = 0; round < ROUNDS; round++) {
    for (size_t i = 0; i < COUNT; i++) buffer[i] = (float)(rank + 1);
    CHECK(dsc_barrier(world, NULL, NULL));
    const double started_ms = now_ms();
    CHECK(dsc_all_reduce(world, buffer, buffer, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
    spent_ms += now_ms() - started_ms;
    EXPECT(buffer[0] == expected && buffer[COUNT - 1] == expected);
  }
  return spent_ms / ROUNDS;
}

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  int32_t size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_size(world, &size));
  const float expected = (float)(size * (size + 1) / 2);

  float* plain = malloc(COUNT * sizeof(float));
  EXPECT(plain != NULL);
  void* shared = NULL; /* collective: all ranks allocate the same number of bytes */
  CHECK(dsc_mem_alloc(world, COUNT * sizeof(float), DSC_MEMORY_KIND_HOST, &shared));

  const double plain_ms = time_all_reduce(world, plain, rank, expected);
  const double shared_ms = time_all_reduce(world, shared, rank, expected);
  if (rank == 0)
    printf("all-reduce of 4 MiB on %d ranks: malloc %.2f ms, dsc_mem_alloc %.2f ms\n", size, plain_ms,
           shared_ms);
  printf("rank %d: every element is %g\n", rank, expected);

  CHECK(dsc_mem_free(shared)); /* local: the other ranks keep their memory */
  free(plain);
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
