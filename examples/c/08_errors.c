/*
 * Errors: every call returns a code, and its message says what was expected and what was found. A
 * communicator that has failed reports the first cause.
 *
 *   dscrun -n 4 -- ./08_errors
 */
#include "check.h"

static void show(int32_t rank, const char* what, dsc_result_t result) {
  printf("rank %d: %s: %s\n  %s\n", rank, what, dsc_result_name(result), dsc_last_error_message());
}

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  int32_t size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_size(world, &size));
  float data[4] = {1.0F, 2.0F, 3.0F, 4.0F};
  float sums[4] = {0.0F, 0.0F, 0.0F, 0.0F};

  /* A wrong argument is refused immediately. Nothing has happened, and the communicator remains usable. */
  const dsc_dtype_t no_dtype = 0;
  dsc_result_t result = dsc_all_reduce(world, data, sums, 4, no_dtype, DSC_OP_SUM, NULL, NULL);
  show(rank, "wrong argument", result);
  EXPECT(result == DSC_ERR_INVALID_ARG);

  /* The ranks disagree: rank 0 sums three numbers, the others four. All ranks report this, and no result
   * is written. The group has failed and cannot be used any more; the world can. */
  dsc_comm_t* group = NULL;
  CHECK(dsc_comm_split(world, 0, rank, NULL, &group));
  result = dsc_all_reduce(group, data, sums, rank == 0 ? 3 : 4, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL);
  show(rank, "ranks disagree", result);
  EXPECT(size == 1 || (result == DSC_ERR_MISMATCH && sums[0] == 0.0F));

  /* Later calls report the first cause again; dsc_comm_error_info() returns its parts. */
  result = dsc_barrier(group, NULL, NULL);
  show(rank, "afterwards", result);
  EXPECT(size == 1 || result == DSC_ERR_REVOKED);
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK(dsc_comm_error_info(group, &info));
  printf("rank %d: code %s, operation %s\n", rank, dsc_result_name(info.code), info.operation);
  CHECK(dsc_comm_destroy(group));

  CHECK(dsc_all_reduce(world, data, sums, 4, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
  EXPECT(sums[3] == 4.0F * (float)size);
  printf("rank %d: the world still works\n", rank);
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
