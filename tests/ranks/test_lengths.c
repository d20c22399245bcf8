/* Errors of operations whose blocks differ in length, and of the barrier with its own time-out. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_c.h"
#include "traffic.h"

enum { SIZE = 4, MOST = 64 };

typedef struct blocks {
  size_t sent[SIZE];
  size_t received[SIZE];
  int32_t send[SIZE * MOST];
  int32_t recv[SIZE * MOST];
} blocks_t;

static void prepare_blocks(blocks_t* blocks, const rank_t* self, size_t count) {
  for (int32_t r = 0; r < self->size; ++r) blocks->sent[r] = blocks->received[r] = count;
  for (int i = 0; i < SIZE * MOST; ++i) {
    blocks->send[i] = self->rank * 1000 + i;
    blocks->recv[i] = -1;
  }
}

static int check_unwritten(rank_t* self, const blocks_t* blocks) {
  for (int i = 0; i < SIZE * MOST; ++i) CHECK(self, blocks->recv[i] == -1);
  return 0;
}

static int check_error(rank_t* self, dsc_result_t code, const char* words) {
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_comm_error_info(self->world, &info));
  CHECK(self, info.code == code && info.revoked == 1);
  if (strstr(info.text, words) == NULL) FAIL(self, "expected \"%s\" in: %s", words, info.text);
  return 0;
}

/* Rank 1 sends one element more to rank 3 than rank 3 expects. All ranks get the error, and no output is
 * written. */
static int pair_differs_body(rank_t* self) {
  blocks_t blocks;
  prepare_blocks(&blocks, self, 5);
  if (self->rank == 1) blocks.sent[3] = 6;
  CHECK_RESULT(self, DSC_ERR_MISMATCH,
               dsc_all_to_all_v(self->world, blocks.send, blocks.sent, blocks.recv, blocks.received,
                                DSC_DTYPE_I32, NULL, NULL));
  PASS_ON(check_unwritten(self, &blocks));
  return check_error(self, DSC_ERR_MISMATCH, "rank 1 sends 6 elements to rank 3, which expects 5");
}

static void a_pair_that_differs(void** state) {
  (void)state;
  assert_int_equal(run_ranks(SIZE, pair_differs_body, NULL), 0);
}

static int lists_differ_body(rank_t* self) {
  const bool reduces = *(const bool*)self->arg;
  blocks_t blocks;
  prepare_blocks(&blocks, self, 3);
  if (self->rank == 2) { /* the sum of the lengths is the same */
    blocks.sent[0] = 2;
    blocks.sent[3] = 4;
  }
  if (reduces)
    CHECK_RESULT(self, DSC_ERR_MISMATCH,
                 dsc_reduce_scatter_v(self->world, blocks.send, blocks.recv, blocks.sent, DSC_DTYPE_I32,
                                      DSC_OP_SUM, NULL, NULL));
  else
    CHECK_RESULT(
        self, DSC_ERR_MISMATCH,
        dsc_all_gather_v(self->world, blocks.send, blocks.recv, blocks.sent, DSC_DTYPE_I32, NULL, NULL));
  PASS_ON(check_unwritten(self, &blocks));
  return check_error(self, DSC_ERR_MISMATCH, "counts 2 3 3 4");
}

static void lists_that_differ(void** state) {
  (void)state;
  for (int reduces = 0; reduces < 2; ++reduces) {
    const bool arg = reduces != 0;
    assert_int_equal(run_ranks(SIZE, lists_differ_body, &arg), 0);
  }
}

/* Ranks without data take part without memory. */
static int nothing_body(rank_t* self) {
  blocks_t blocks;
  prepare_blocks(&blocks, self, 0);
  CHECK_OK(self, dsc_all_to_all_v(self->world, NULL, blocks.sent, NULL, blocks.received, DSC_DTYPE_I32, NULL,
                                  NULL));
  CHECK_OK(self, dsc_all_gather_v(self->world, NULL, NULL, blocks.sent, DSC_DTYPE_I32, NULL, NULL));
  /* The last rank sends to the first one. Nothing else is sent. */
  const int32_t last = self->size - 1;
  if (self->rank == last) blocks.sent[0] = 7;
  if (self->rank == 0) blocks.received[last] = 7;
  CHECK_OK(self, dsc_all_to_all_v(self->world, self->rank == last ? blocks.send : NULL, blocks.sent,
                                  self->rank == 0 ? blocks.recv : NULL, blocks.received, DSC_DTYPE_I32, NULL,
                                  NULL));
  for (int i = 0; i < 7 && self->rank == 0; ++i) CHECK(self, blocks.recv[i] == last * 1000 + i);
  return 0;
}

static void ranks_without_data(void** state) {
  (void)state;
  for (int32_t size = 2; size <= SIZE; ++size) assert_int_equal(run_ranks(size, nothing_body, NULL), 0);
}

static int monitored_body(rank_t* self) {
  CHECK_OK(self, dsc_monitored_barrier(self->world, 10000));
  if (self->rank == 1 || self->rank == 3) { /* these ranks join after the others have given up */
    dsc_error_info_t info = {.struct_size = sizeof info};
    for (const int64_t end = now_ms() + 50000; info.code == DSC_OK && now_ms() < end; usleep(1000))
      CHECK_OK(self, dsc_comm_error_info(self->world, &info));
    CHECK(self, info.code == DSC_ERR_TIMEOUT && info.revoked == 1);
    return 0;
  }
  const int64_t start = now_ms();
  CHECK_RESULT(self, DSC_ERR_TIMEOUT, dsc_monitored_barrier(self->world, 4000));
  CHECK(self, now_ms() - start >= 3990 && now_ms() - start < 20000);
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_comm_error_info(self->world, &info));
  CHECK(self, info.n_ranks == 2 && info.ranks[0] == 1 && info.ranks[1] == 3);
  return check_error(self, DSC_ERR_TIMEOUT, "ranks 1, 3");
}

static void monitored_barrier_names_all_missing(void** state) {
  (void)state;
  if (ranks_are_on_several_hosts()) skip(); /* between hosts each host names its own missing rank */
  assert_int_equal(run_ranks(SIZE, monitored_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_pair_that_differs),
      cmocka_unit_test(lists_that_differ),
      cmocka_unit_test(ranks_without_data),
      cmocka_unit_test(monitored_barrier_names_all_missing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
