/* Late ranks must be reported in time, whatever else is going on. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_c.h"
#include "ranks.h"

enum { TIMEOUT_MS = 300, SOON_MS = 10000, AT_WORK = 1, TOLD = 2 };

/* On rank 1 this function runs until rank 0 has given up. Rank 0 leaves a part of the work to rank 1. */
static int32_t slow_op(void* context, const dsc_op_call_t* call) {
  (void)call;
  rank_t* const self = context;
  if (self->rank == 0) return ranks_noted(self) == TOLD ? 0 : ranks_await(self, AT_WORK);
  if (ranks_noted(self) != TOLD) ranks_note(self, AT_WORK);
  return ranks_await(self, TOLD);
}

static int slow_body(rank_t* self) {
  enum { COUNT = 100000 };
  float* data = calloc(COUNT, sizeof *data);
  dsc_op_t op = 0;
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_op_create_user(slow_op, self, 1, 1, &op));
  if (self->rank == 0) { /* sets a time-out that applies only to the operation that follows */
    PASS_ON(ranks_meet(self));
    CHECK_OK(self, dsc_comm_set_timeout(self->world, TIMEOUT_MS));
  }
  CHECK_OK(self, dsc_all_reduce(self->world, data, data, COUNT, DSC_DTYPE_F32, op, NULL, &work));
  if (self->rank == 1) {
    CHECK_RESULT(self, DSC_IN_PROGRESS, dsc_work_wait(work, 20, NULL));
    PASS_ON(ranks_meet(self));
  }
  CHECK_RESULT(self, DSC_ERR_TIMEOUT, dsc_work_wait(work, -1, NULL));
  ranks_note(self, TOLD);
  CHECK_OK(self, dsc_work_destroy(work));
  free(data);
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_comm_error_info(self->world, &info));
  if (info.rank != 1 || strstr(info.text, "rank 1 (pid ") == NULL ||
      strstr(info.text, "did not finish") == NULL)
    FAIL(self, "rank %d: %s", info.rank, info.text);
  return 0;
}

static void rank_that_came_and_works_is_named(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, slow_body, NULL), 0);
}

static void without_thread(rank_t* self) { self->options.progress_thread = 0; }

static int32_t sleepy_op(void* context, const dsc_op_call_t* call) {
  (void)context, (void)call;
  usleep(30 * 1000);
  return 0;
}

/* No other rank joins the barrier on `lonely`. Meanwhile `busy` keeps moving data. */
static int starved(rank_t* self, dsc_comm_t* lonely, dsc_work_t* busy) {
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_comm_set_timeout(lonely, TIMEOUT_MS));
  const int64_t start = now_ms();
  CHECK_OK(self, dsc_barrier(lonely, NULL, &work));
  int32_t done = 0;
  while (done == 0) CHECK_OK(self, dsc_work_test(work, &done));
  CHECK(self, now_ms() - start < TIMEOUT_MS + SOON_MS);
  CHECK_RESULT(self, DSC_ERR_TIMEOUT, dsc_work_wait(work, -1, NULL));
  CHECK_OK(self, dsc_work_test(busy, &done));
  CHECK(self, done == 0); /* otherwise `busy` would not have kept the library busy */
  return dsc_work_destroy(work) == DSC_OK ? 0 : 1;
}

/* One operation on shared memory makes progress in every step, for longer than SOON_MS. */
static int starved_body(rank_t* self) {
  enum { COUNT = 4 << 20 };
  dsc_comm_t *busy = NULL, *lonely = NULL;
  void* data = NULL;
  dsc_work_t* work = NULL;
  dsc_op_t op = 0;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &busy));
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &lonely));
  CHECK_OK(self, dsc_mem_alloc(busy, COUNT * sizeof(float), DSC_MEMORY_KIND_HOST, &data));
  CHECK_OK(self, dsc_op_create_user(sleepy_op, NULL, 1, 1, &op));
  CHECK_OK(self, dsc_all_reduce(busy, data, data, COUNT, DSC_DTYPE_F32, op, NULL, &work));
  int failed = 0;
  if (self->rank == 0) {
    failed = starved(self, lonely, work);
    CHECK_OK(self, dsc_comm_abort(busy));
  }
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_work_wait(work, -1, NULL));
  CHECK_OK(self, dsc_work_destroy(work));
  CHECK_OK(self, dsc_op_destroy(op));
  CHECK_OK(self, dsc_mem_free(data));
  CHECK_OK(self, dsc_comm_destroy(busy));
  CHECK_OK(self, dsc_comm_destroy(lonely));
  return failed;
}

static void time_out_while_others_move(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, starved_body, NULL), 0);
  assert_int_equal(run_ranks_with(2, without_thread, starved_body, NULL), 0);
}

/* Each rank waits for the next one. The last rank makes no call, or waits for the first rank, which closes
 * the circle. */
static int chain_body(rank_t* self, int is_circle) {
  enum { CHAIN_TIMEOUT_MS = 1500 };
  const int last = self->size - 1, is_last = self->rank == last;
  int32_t number = 0;
  PASS_ON(ranks_meet(self));
  CHECK_OK(self, dsc_comm_set_timeout(self->world, CHAIN_TIMEOUT_MS));
  if (!is_last || is_circle)
    CHECK_RESULT(self, DSC_ERR_TIMEOUT,
                 dsc_recv(self->world, &number, 1, DSC_DTYPE_I32, (self->rank + 1) % self->size, NULL, NULL));
  PASS_ON(ranks_meet(self));
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_comm_error_info(self->world, &info));
  const char* words = is_circle ? "each waits for the next one" : "rank 3 (pid ";
  if (info.n_ranks != (is_circle ? 4 : 1) || info.ranks[info.n_ranks - 1] != last ||
      !strstr(info.text, words))
    FAIL(self, "%zu ranks, the last one %d: %s", info.n_ranks, info.ranks[0], info.text);
  return 0;
}

static int open_chain(rank_t* self) { return chain_body(self, 0); }
static int circle(rank_t* self) { return chain_body(self, 1); }

static void the_end_of_a_chain_of_messages_is_named(void** state) {
  (void)state;
  assert_int_equal(run_ranks(4, open_chain, NULL), 0);
  assert_int_equal(run_ranks(4, circle, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rank_that_came_and_works_is_named),
      cmocka_unit_test(time_out_while_others_move),
      cmocka_unit_test(the_end_of_a_chain_of_messages_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
