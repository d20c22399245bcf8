/*
 * A framework that uses libdsc if it is installed. The program is not linked to libdsc. Without libdsc, or
 * with one that is too old, a single process works and says why; one of several processes fails.
 *
 *   dscrun -n 4 -- ./optional_libdsc
 *   DSC_LIBRARY=libdsc.so.missing ./optional_libdsc
 */
#include <stdio.h>
#include <stdlib.h>

#include "ranks.h"

int main(void) {
  struct ranks ranks;
  if (!ranks_join(&ranks)) return EXIT_FAILURE;
  double gradient = 1.0 + ranks.rank;
  if (!ranks_average(&ranks, &gradient)) return EXIT_FAILURE;
  printf("rank %d of %d: mean gradient %g\n", (int)ranks.rank, (int)ranks.size, gradient);
  return ranks_leave(&ranks) ? EXIT_SUCCESS : EXIT_FAILURE;
}
