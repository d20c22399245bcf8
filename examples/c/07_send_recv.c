/*
 * Messages around a ring. A send completes only when its receiver has called dsc_recv(). Therefore both
 * directions are started before either of them is waited for.
 *
 *   dscrun -n 4 -- ./07_send_recv
 */
#include "check.h"

enum { COUNT = 1000 };

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  int32_t size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_size(world, &size));
  if (size < 2) {
    fprintf(stderr, "a ring needs two ranks or more: dscrun -n 4 -- ./07_send_recv\n");
    return EXIT_FAILURE;
  }
  const int32_t next = (rank + 1) % size;
  const int32_t previous = (rank + size - 1) % size;

  int64_t outgoing[COUNT];
  int64_t incoming[COUNT];
  for (size_t i = 0; i < COUNT; i++) outgoing[i] = rank;

  int64_t seen = 0;
  for (int32_t hop = 1; hop < size; hop++) { /* the received values are sent on to the next rank */
    dsc_work_t* receiving = NULL;
    dsc_work_t* sending = NULL;
    CHECK(dsc_recv(world, incoming, COUNT, DSC_DTYPE_I64, previous, NULL, &receiving));
    CHECK(dsc_send(world, outgoing, COUNT, DSC_DTYPE_I64, next, NULL, &sending));
    CHECK(dsc_work_wait(receiving, -1, NULL));
    CHECK(dsc_work_wait(sending, -1, NULL));
    CHECK(dsc_work_destroy(receiving));
    CHECK(dsc_work_destroy(sending));

    EXPECT(incoming[0] == (rank + size - hop) % size && incoming[COUNT - 1] == incoming[0]);
    seen += incoming[0];
    for (size_t i = 0; i < COUNT; i++) outgoing[i] = incoming[i];
  }
  printf("rank %d: %d messages from rank %d, values sum to %lld\n", rank, size - 1, previous,
         (long long)seen);

  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
