/* An abort at any moment: every rank gets the right result or an error, never success with missing data. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "cmocka_c.h"
#include "reference.h"
#include "repetitions.h"
#include "traffic.h"

enum { COUNT = 16 * 1024 };

typedef struct {
  dsc_comm_t* group;
  long delay_ns;
} aborter_t;

static void* abort_later(void* opaque) {
  const aborter_t* aborter = opaque;
  const struct timespec delay = {0, aborter->delay_ns};
  nanosleep(&delay, NULL);
  return (void*)(intptr_t)dsc_comm_abort(aborter->group);
}

/* A successful all-reduce must give the sum, for shared and for plain buffers. */
static int reduce_and_check(rank_t* self, dsc_comm_t* group, float* data, int* succeeded) {
  for (int i = 0; i < COUNT; ++i) data[i] = (float)(self->rank + 1);
  const dsc_result_t result = dsc_all_reduce(group, data, data, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL);
  if (result == DSC_ERR_REVOKED || result == DSC_ERR_PEER_LEFT) return 0;
  CHECK_RESULT(self, DSC_OK, result);
  *succeeded += 1;
  for (int i = 0; i < COUNT; ++i)
    if (data[i] != 3.0f) FAIL(self, "success, but element %d is %g, expected 3", i, (double)data[i]);
  return 0;
}

static int abort_round(rank_t* self, float* data, long delay_ns, int* succeeded) {
  dsc_comm_t* group = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  pthread_t thread;
  aborter_t aborter = {group, delay_ns};
  const int aborts = self->rank == 0;
  if (aborts) CHECK(self, pthread_create(&thread, NULL, abort_later, &aborter) == 0);
  int failed = 0;
  for (int i = 0; i < 8 && !failed; ++i) failed = reduce_and_check(self, group, data, succeeded);
  void* result = NULL;
  if (aborts) pthread_join(thread, &result);
  CHECK(self, result == NULL);
  CHECK_OK(self, dsc_comm_destroy(group));
  return failed;
}

static int abort_body(rank_t* self) {
  void* shared = NULL;
  CHECK_OK(self, dsc_mem_alloc(self->world, COUNT * sizeof(float), DSC_MEMORY_KIND_HOST, &shared));
  float* plain = malloc(COUNT * sizeof *plain);
  CHECK(self, plain != NULL);
  int succeeded = 0;
  const int rounds = test_repetitions(200, 20);
  for (int round = 0; round < rounds; ++round)
    PASS_ON(abort_round(self, round % 2 == 0 ? shared : plain,
                        round % 50 == 0 ? 20000000L : (round * 997L) % 150000, &succeeded));
  CHECK(self, succeeded > 0);
  free(plain);
  CHECK_OK(self, dsc_mem_free(shared));
  return 0;
}

static void abort_at_any_moment(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, abort_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(abort_at_any_moment)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
