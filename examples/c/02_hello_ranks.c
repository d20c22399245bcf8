/*
 * The four basic collectives. With four ranks each of them prints
 *   rank summed to 6, reduce-scatter 6, all-gather [0, 1, 2, 3], broadcast 4
 *
 *   dscrun -n 4 -- ./02_hello_ranks
 */
#include "check.h"

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  int32_t size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_size(world, &size));

  /* All-reduce: every rank contributes its number; every rank gets the sum of all numbers. */
  int32_t sum = -1;
  CHECK(dsc_all_reduce(world, &rank, &sum, 1, DSC_DTYPE_I32, DSC_OP_SUM, NULL, NULL));

  /* Reduce-scatter: every rank contributes one number for each rank; rank r gets the sum of the numbers
   * for it. */
  int32_t* many = malloc((size_t)size * sizeof *many);
  EXPECT(many != NULL);
  for (int32_t i = 0; i < size; i++) many[i] = rank;
  int32_t part = -1;
  CHECK(dsc_reduce_scatter(world, many, &part, 1, DSC_DTYPE_I32, DSC_OP_SUM, NULL, NULL));

  /* All-gather: every rank contributes its number; every rank gets all numbers, in rank order. */
  CHECK(dsc_all_gather(world, &rank, many, 1, DSC_DTYPE_I32, NULL, NULL));

  /* Broadcast: rank 0 sends the number of ranks to all others. */
  int32_t told = rank == 0 ? size : -1;
  CHECK(dsc_broadcast(world, &told, &told, 1, DSC_DTYPE_I32, 0, NULL, NULL));

  printf("rank %d of %d: rank summed to %d, reduce-scatter %d, all-gather [", rank, size, sum, part);
  for (int32_t i = 0; i < size; i++) printf("%s%d", i > 0 ? ", " : "", many[i]);
  printf("], broadcast %d\n", told);

  free(many);
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
