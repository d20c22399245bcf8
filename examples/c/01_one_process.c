/*
 * A single process is a world of one rank, so a program needs no special version for it.
 *
 *   ./01_one_process
 */
#include "check.h"

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world)); /* no launcher has set RANK: a world of one rank */

  int32_t rank = -1;
  int32_t size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_size(world, &size));
  EXPECT(rank == 0 && size == 1);

  char source[64];
  size_t bytes = 0;
  CHECK(dsc_comm_source(world, source, sizeof source, &bytes));
  int32_t major = -1;
  int32_t minor = -1;
  CHECK(dsc_version(&major, &minor, NULL));
  printf("libdsc %d.%d: rank %d of %d (from: %s)\n", major, minor, rank, size, source);

  /* The sum over one rank is that rank's own values. */
  const double send[3] = {1.0, 2.0, 3.0};
  double recv[3] = {0.0, 0.0, 0.0};
  CHECK(dsc_all_reduce(world, send, recv, 3, DSC_DTYPE_F64, DSC_OP_SUM, NULL, NULL));
  EXPECT(recv[0] == 1.0 && recv[1] == 2.0 && recv[2] == 3.0);
  printf("all-reduce of [1, 2, 3] is [%g, %g, %g]\n", recv[0], recv[1], recv[2]);

  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
