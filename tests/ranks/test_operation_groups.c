/* Operations between dsc_batch_begin() and dsc_batch_end(). */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "ranks.h"
#include "repetitions.h"

enum { COUNT = 20000 };

typedef struct ring {
  int32_t right, left;
  int32_t sent[COUNT], received[COUNT], sums[COUNT];
} ring_t;

static void fill(ring_t* ring, const rank_t* self) {
  ring->right = (self->rank + 1) % self->size;
  ring->left = (self->rank + self->size - 1) % self->size;
  for (int i = 0; i < COUNT; ++i) {
    ring->sent[i] = self->rank * COUNT + i;
    ring->sums[i] = 1;
    ring->received[i] = -1;
  }
}

/* Every rank sends first, which would never end without a batch. There are also sums among the operations. */
static int note_all(rank_t* self, ring_t* ring) {
  CHECK_OK(self, dsc_batch_begin(self->world));
  CHECK_OK(self, dsc_send(self->world, ring->sent, COUNT, DSC_DTYPE_I32, ring->right, NULL, NULL));
  CHECK_OK(self,
           dsc_all_reduce(self->world, ring->sums, ring->sums, COUNT, DSC_DTYPE_I32, DSC_OP_SUM, NULL, NULL));
  CHECK_OK(self, dsc_recv(self->world, ring->received, COUNT, DSC_DTYPE_I32, ring->left, NULL, NULL));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  CHECK(self, ring->received[0] == -1 && ring->sums[0] == 1); /* no operation has started yet */
  return 0;
}

static int check_ring(rank_t* self, const ring_t* ring) {
  for (int i = 0; i < COUNT; ++i)
    CHECK(self, ring->received[i] == ring->left * COUNT + i && ring->sums[i] == self->size);
  return 0;
}

static int ring_body(rank_t* self) {
  ring_t ring;
  const int turns = test_repetitions(20, 4);
  for (int turn = 0; turn < turns; ++turn) {
    fill(&ring, self);
    PASS_ON(note_all(self, &ring));
    dsc_work_t* work = NULL;
    CHECK_OK(self, dsc_batch_end(self->world, NULL, turn % 2 == 0 ? NULL : &work));
    if (work != NULL) {
      int32_t completed = 0;
      CHECK_OK(self, dsc_work_wait(work, -1, NULL));
      CHECK_OK(self, dsc_work_test(work, &completed));
      CHECK(self, completed == 1);
      CHECK_OK(self, dsc_work_destroy(work));
    }
    PASS_ON(check_ring(self, &ring));
  }
  return 0;
}

static void messages_do_not_wait_for_each_other(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 4; ++size) assert_int_equal(run_ranks(size, ring_body, NULL), 0);
}

/* The descriptor becomes readable only after the last operation has ended. */
static int descriptor_body(rank_t* self) {
  dsc_comm_t* late = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &late));
  CHECK_OK(self, dsc_batch_begin(self->world));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  char byte = (char)self->rank;
  if (self->rank == 0) CHECK_OK(self, dsc_recv(self->world, &byte, 1, DSC_DTYPE_U8, 1, NULL, NULL));
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_batch_end(self->world, NULL, &work));
  int32_t descriptor = -1;
  CHECK_OK(self, dsc_work_eventfd(work, &descriptor));
  struct pollfd query = {.fd = descriptor, .events = POLLIN};
  if (self->rank == 0) {
    CHECK(self, poll(&query, 1, 50) == 0); /* the message has not been sent */
    CHECK_OK(self, dsc_barrier(late, NULL, NULL));
  } else {
    CHECK(self, poll(&query, 1, 10000) == 1);
    CHECK_OK(self, dsc_barrier(late, NULL, NULL));
    if (self->rank == 1) CHECK_OK(self, dsc_send(self->world, &byte, 1, DSC_DTYPE_U8, 0, NULL, NULL));
  }
  CHECK(self, poll(&query, 1, 10000) == 1);
  CHECK_OK(self, dsc_work_wait(work, 0, NULL));
  CHECK(self, self->rank != 0 || byte == 1);
  CHECK_OK(self, dsc_work_destroy(work));
  return dsc_comm_destroy(late) == DSC_OK ? 0 : 1;
}

static void one_descriptor_for_all(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 3; ++size) assert_int_equal(run_ranks(size, descriptor_body, NULL), 0);
}

/* Destroying the work closes the descriptor, even if operations still run. */
static int given_back_body(rank_t* self) {
  char bytes[2] = "ab", heard[2] = "";
  dsc_work_t* work = NULL;
  int32_t descriptor = -1;
  if (self->rank == 0) {
    CHECK_OK(self, dsc_batch_begin(self->world));
    CHECK_OK(self, dsc_recv(self->world, &heard[0], 1, DSC_DTYPE_U8, 1, NULL, NULL));
    CHECK_OK(self, dsc_batch_end(self->world, NULL, &work));
    CHECK_OK(self, dsc_work_eventfd(work, &descriptor));
    CHECK(self, fcntl(descriptor, F_GETFD) >= 0);
    CHECK_OK(self, dsc_work_destroy(work));
    CHECK(self, fcntl(descriptor, F_GETFD) == -1);
  }
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  for (int i = 0; i < 2 && self->rank == 1; ++i)
    CHECK_OK(self, dsc_send(self->world, &bytes[i], 1, DSC_DTYPE_U8, 0, NULL, NULL));
  if (self->rank == 0) {
    CHECK_OK(self,
             /* receives the second message */
             dsc_recv(self->world, &heard[1], 1, DSC_DTYPE_U8, 1, NULL, NULL));
    CHECK(self, heard[0] == 'a' && heard[1] == 'b');
  }
  return 0;
}

static void a_descriptor_goes_with_its_work(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, given_back_body, NULL), 0);
}

/* Without a progress thread, queries of the batch's work drive all of its operations. */
static void without_thread(rank_t* self) { self->options.progress_thread = 0; }

static int tested_body(rank_t* self) {
  ring_t ring;
  fill(&ring, self);
  PASS_ON(note_all(self, &ring));
  dsc_work_t* work = NULL;
  int32_t completed = 0;
  CHECK_OK(self, dsc_batch_end(self->world, NULL, &work));
  for (const int64_t start = now_ms(); completed == 0 && now_ms() - start < 20000;)
    CHECK_OK(self, dsc_work_test(work, &completed));
  CHECK(self, completed == 1);
  CHECK_OK(self, dsc_work_wait(work, 0, NULL));
  CHECK_OK(self, dsc_work_destroy(work));
  return check_ring(self, &ring);
}

static void testing_moves_a_group(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 3; ++size)
    assert_int_equal(run_ranks_with(size, without_thread, tested_body, NULL), 0);
}

/* One operation of the batch differs between ranks. The batch fails with this first cause. */
static int failure_body(rank_t* self) {
  int32_t value = 1;
  for (int turn = 0; turn < 2; ++turn) {
    dsc_comm_t* group = NULL;
    CHECK_OK(self, dsc_comm_split(self->world, 0, self->rank, NULL, &group));
    CHECK_OK(self, dsc_batch_begin(group));
    CHECK_OK(self, dsc_barrier(group, NULL, NULL));
    CHECK_OK(self, dsc_all_reduce(group, &value, &value, 1, DSC_DTYPE_I32,
                                  self->rank == 0 ? DSC_OP_SUM : DSC_OP_MAX, NULL, NULL));
    CHECK_OK(self, dsc_barrier(group, NULL, NULL));
    dsc_work_t* work = NULL;
    if (turn == 0) {
      CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_batch_end(group, NULL, NULL));
    } else {
      CHECK_OK(self, dsc_batch_end(group, NULL, &work));
      CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_work_wait(work, -1, NULL));
    }
    CHECK(self, strstr(dsc_last_error_message(), "collective 2 (all_reduce)") != NULL);
    CHECK_OK(self, dsc_work_destroy(work));
    CHECK_OK(self, dsc_batch_begin(group)); /* operations of an open batch fail when the batch starts */
    CHECK_OK(self, dsc_barrier(group, NULL, NULL));
    CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_batch_end(group, NULL, NULL));
    CHECK_OK(self, dsc_comm_destroy(group));
  }
  return 0;
}

static void failures_are_the_groups(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 3; ++size) assert_int_equal(run_ranks(size, failure_body, NULL), 0);
}

/* An empty batch, and a batch that is never ended. */
static int odd_body(rank_t* self) {
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_batch_begin(self->world));
  CHECK_OK(self, dsc_batch_end(self->world, NULL, &work));
  CHECK_OK(self, dsc_work_wait(work, 0, NULL));
  CHECK_OK(self, dsc_work_destroy(work));
  dsc_comm_t* group = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  CHECK_OK(self, dsc_batch_begin(group));
  CHECK_OK(self, dsc_barrier(group, NULL, NULL));
  return dsc_comm_destroy(group) == DSC_OK ? 0 : 1;
}

static void empty_and_forgotten(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, odd_body, NULL), 0);
}

/* Finalizing the world is refused while a batch is open. Agreeing drops the batch. */
static int open_body(rank_t* self) {
  int32_t agreed = 0;
  CHECK_OK(self, dsc_batch_begin(self->world));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_finalize());
  CHECK_OK(self, dsc_comm_agree(self->world, 1, &agreed));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_batch_end(self->world, NULL, NULL));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  return 0;
}

static void what_ends_with_a_group_open(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, open_body, NULL), 0);
}

/* If one operation fails but the communicator stays usable, the failure is reported after all operations have
 * ended. */
static int one_fails_body(rank_t* self) {
  enum { LARGE = 6 << 20 };
  float small[4] = {NAN, 1, 1, 1};
  float* large = calloc(LARGE, sizeof *large);
  dsc_work_t* work = NULL;
  int32_t done = 0;
  for (size_t i = 0; i < LARGE; ++i) large[i] = 1;
  CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_FAIL));
  CHECK_OK(self, dsc_batch_begin(self->world));
  CHECK_OK(self, dsc_all_reduce(self->world, small, small, 4, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
  CHECK_OK(self, dsc_all_reduce(self->world, large, large, LARGE, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
  CHECK_OK(self, dsc_batch_end(self->world, NULL, &work));
  CHECK_RESULT(self, DSC_ERR_NONFINITE, dsc_work_wait(work, -1, NULL));
  CHECK_OK(self, dsc_work_test(work, &done));
  CHECK(self, done == 1);
  CHECK(self, large[0] == (float)self->size && large[LARGE - 1] == (float)self->size);
  free(large);
  return dsc_work_destroy(work) == DSC_OK ? 0 : 1;
}

static void a_failure_waits_for_the_others(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, one_fails_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_do_not_wait_for_each_other),
      cmocka_unit_test(one_descriptor_for_all),
      cmocka_unit_test(a_descriptor_goes_with_its_work),
      cmocka_unit_test(testing_moves_a_group),
      cmocka_unit_test(failures_are_the_groups),
      cmocka_unit_test(empty_and_forgotten),
      cmocka_unit_test(what_ends_with_a_group_open),
      cmocka_unit_test(a_failure_waits_for_the_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
