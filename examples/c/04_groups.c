/*
 * Groups: dsc_comm_split() divides the world by color, dsc_comm_create_group() takes a list of ranks.
 *
 *   dscrun -n 4 -- ./04_groups
 */
#include "check.h"

/* Sums the world's rank numbers over a group. */
static int32_t sum_over(dsc_comm_t* group, int32_t value) {
  CHECK(dsc_all_reduce(group, &value, &value, 1, DSC_DTYPE_I32, DSC_OP_SUM, NULL, NULL));
  return value;
}

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  int32_t size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_size(world, &size));

  /* Ranks of one color form a group: here the even ranks and the odd ranks. */
  dsc_comm_t* half = NULL;
  CHECK(dsc_comm_split(world, rank % 2, rank, NULL, &half));
  int32_t half_rank = -1;
  int32_t half_size = 0;
  CHECK(dsc_comm_rank(half, &half_rank));
  CHECK(dsc_comm_size(half, &half_size));
  printf("rank %d: number %d of %d %s ranks, which sum to %d\n", rank, half_rank, half_size,
         rank % 2 == 0 ? "even" : "odd", sum_over(half, rank));

  /* All ranks of the parent make this call with the same list. The order of the list is the order in the
   * group. */
  const int32_t ends[2] = {size - 1, 0};
  const int32_t n_ends = size > 1 ? 2 : 1;
  dsc_comm_options_t options;
  CHECK(dsc_comm_options_init(&options, sizeof options));
  options.name = "ends"; /* shown in errors */
  dsc_comm_t* group = NULL;
  CHECK(dsc_comm_create_group(world, ends, n_ends, &options, &group));
  if (group != NULL) { /* ranks that are not listed get NULL */
    int32_t first = -1;
    CHECK(dsc_comm_global_rank(group, 0, &first));
    EXPECT(first == size - 1);
    printf("rank %d: in the group of both ends, whose first is rank %d; sum %d\n", rank, first,
           sum_over(group, rank));
  }

  CHECK(dsc_comm_destroy(group)); /* NULL is fine */
  CHECK(dsc_comm_destroy(half));
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
