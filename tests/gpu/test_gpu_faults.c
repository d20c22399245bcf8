/* Failures on devices. Some are injected into the fakes. Kills, stops and mismatches are also tested on real
 * cards. Ranks are processes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_c.h"
#include "gpu.h"
#include "ranks.h"

enum { COUNT = 1000 };

/* Less than any time-out, but more than a busy machine needs. The abort of a real NCCL takes a while. */
enum { QUICKLY_MS = 15000 };

typedef struct memory {
  float* data; /* device memory */
  dsc_comm_t* comm;
} memory_t;

static int open_memory(rank_t* self, memory_t* memory, dsc_comm_t* comm) {
  float ones[COUNT];
  for (int i = 0; i < COUNT; ++i) ones[i] = 1;
  memory->comm = comm;
  memory->data = gpu_alloc(sizeof ones);
  if (memory->data == NULL || !gpu_upload(memory->data, ones, sizeof ones)) FAIL(self, "%s", gpu_trouble());
  return 0;
}

static dsc_result_t sum(const memory_t* memory, dsc_work_t** work) {
  return dsc_all_reduce(memory->comm, memory->data, memory->data, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL,
                        work);
}

/* Checks a sum over all ranks of comm. */
static int check_sum(rank_t* self, dsc_comm_t* comm) {
  memory_t memory;
  float came[COUNT];
  int32_t size = 0;
  dsc_work_t* work = NULL;
  PASS_ON(open_memory(self, &memory, comm));
  CHECK_OK(self, dsc_comm_size(comm, &size));
  CHECK_OK(self, sum(&memory, &work));
  CHECK_OK(self, dsc_work_synchronize(work, -1));
  CHECK_OK(self, dsc_work_destroy(work));
  CHECK(self, gpu_download(came, memory.data, sizeof came));
  for (int i = 0; i < COUNT; ++i) CHECK(self, came[i] == (float)size);
  gpu_free(memory.data);
  return 0;
}

/* Checks that the operation soon fails with `code` on this rank, and that the error names `culprit` and the
 * operation. */
static int check_failure(rank_t* self, dsc_work_t* work, dsc_result_t code, int32_t culprit, int limit_ms) {
  const int64_t begin = now_ms();
  CHECK_RESULT(self, code, dsc_work_synchronize(work, -1));
  CHECK(self, now_ms() - begin < limit_ms);
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_comm_error_info(self->world, &info));
  if (culprit >= 0 && info.rank != culprit) FAIL(self, "rank %d is blamed: %s", info.rank, info.text);
  CHECK_OK(self, dsc_work_error_info(work, &info));
  CHECK(self, info.revoked == 1);
  CHECK(self, strstr(info.text, " (all_reduce) of group ") != NULL);
  CHECK_OK(self, dsc_work_destroy(work));
  return 0;
}

/* Checks that the stream that waited for the failed operation is idle again, and that the process still
 * works. */
static int check_free(rank_t* self) {
  CHECK(self, gpu_synchronize(NULL));
  memory_t memory;
  PASS_ON(open_memory(self, &memory, self->world));
  CHECK(self, sum(&memory, NULL) != DSC_OK); /* reports the cause, unless an earlier call has done so */
  CHECK_RESULT(self, DSC_ERR_REVOKED, sum(&memory, NULL));
  gpu_free(memory.data);
  return 0;
}

static int next_world(rank_t* self) {
  CHECK_OK(self, dsc_comm_destroy(self->world));
  dsc_init_options_t options = self->options;
  char job[64]; /* used by this program only, whatever else runs on this machine */
  snprintf(job, sizeof job, "%s-after", self->options.job_id);
  options.job_id = job;
  CHECK_OK(self, dsc_init_distributed(&options, &self->world));
  return check_sum(self, self->world);
}

static void run_with_fault(const char* fault, int32_t size, rank_options_t options, rank_body_t body,
                           int failed) {
  setenv("FAKE_NCCL_FAULT", fault, 1);
  const int came = run_ranks_with(size, options, body, NULL);
  unsetenv("FAKE_NCCL_FAULT");
  assert_int_equal(came, failed);
}

/* --- without injected faults */

/* No call waits for the gradients of some steps. The next call reports the death soon. */
static int killed_reducer_body(rank_t* self) {
  memory_t memory;
  PASS_ON(open_memory(self, &memory, self->world));
  const dsc_tensor_t tensor = {sizeof tensor,        NULL, NULL, "w", COUNT, DSC_DTYPE_F32, 0,
                               self->options.device, 0};
  dsc_bucket_reducer_options_t options;
  dsc_bucket_reducer_t* reducer = NULL;
  CHECK_OK(self, dsc_bucket_reducer_options_init(&options, sizeof options));
  options.sync = 0;
  CHECK_OK(self, dsc_bucket_reducer_create(self->world, &tensor, 1, &options, &reducer));
  CHECK_OK(self, dsc_bucket_reducer_use_hook(reducer, self->arg));
  dsc_result_t failed = DSC_OK;
  int64_t died_ms = 0;
  for (int step = 0; failed == DSC_OK; ++step) {
    if (died_ms != 0) CHECK(self, now_ms() - died_ms < QUICKLY_MS);
    failed = dsc_bucket_reducer_begin(reducer, NULL);
    if (failed == DSC_OK) failed = dsc_bucket_reducer_mark_ready(reducer, 0, memory.data, NULL);
    if (self->rank == 1 && step == 20) kill(getpid(), SIGKILL);
    if (step == 20) died_ms = now_ms();
    if (failed == DSC_OK) failed = dsc_bucket_reducer_finish(reducer, NULL);
    if (failed == DSC_OK && step >= 20) failed = dsc_bucket_reducer_synchronize(reducer, -1);
  }
  if (failed != DSC_ERR_PEER_DEAD || !strstr(dsc_last_error_message(), "rank 1"))
    FAIL(self, "%d: %s", failed, dsc_last_error_message());
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_bucket_reducer_begin(reducer, NULL));
  CHECK(self, gpu_synchronize(NULL));
  CHECK_OK(self, dsc_bucket_reducer_destroy(reducer));
  return 0;
}

static int killed_body(rank_t* self) {
  PASS_ON(check_sum(self, self->world));
  PASS_ON(ranks_meet(self));
  if (self->rank == 1) kill(getpid(), SIGKILL);
  memory_t memory;
  dsc_work_t* work = NULL;
  PASS_ON(open_memory(self, &memory, self->world));
  const dsc_result_t called = sum(&memory, &work); /* the library may already know of the death */
  if (called == DSC_OK)
    PASS_ON(check_failure(self, work, DSC_ERR_PEER_DEAD, 1, QUICKLY_MS));
  else
    CHECK(self, called == DSC_ERR_PEER_DEAD);
  PASS_ON(check_free(self));
  dsc_comm_t* rest = NULL;
  CHECK_OK(self, dsc_comm_shrink(self->world, NULL, &rest));
  PASS_ON(check_sum(self, rest));
  return 0;
}

static void survivors_name_a_killed_rank_and_go_on(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, killed_body, NULL), 1);
  static const char* const hooks[] = {NULL, "fp16", "int8"};
  for (size_t h = 0; h < sizeof hooks / sizeof *hooks; ++h)
    assert_int_equal(run_ranks(3, killed_reducer_body, hooks[h]), 1);
}

static void short_stalls(rank_t* self) { self->options.stall_timeout_ms = 1000; }

static int stopped_body(rank_t* self) {
  PASS_ON(check_sum(self, self->world));
  PASS_ON(ranks_meet(self));
  if (self->rank == 1) {
    if (fork() == 0) { /* kills this rank after rank 0 is done */
      ranks_await(self, 1);
      kill(getppid(), SIGKILL);
      _exit(0);
    }
    raise(SIGSTOP);
  }
  memory_t memory;
  dsc_work_t* work = NULL;
  PASS_ON(open_memory(self, &memory, self->world));
  CHECK_OK(self, sum(&memory, &work));
  PASS_ON(check_failure(self, work, DSC_ERR_PEER_STALLED, 1, 1000 + QUICKLY_MS));
  ranks_note(self, 1);
  return 0;
}

static void survivors_name_a_stopped_rank(void** state) {
  (void)state;
  assert_int_equal(run_ranks_with(2, short_stalls, stopped_body, NULL), 1);
}

static int late_body(rank_t* self) {
  PASS_ON(check_sum(self, self->world));
  CHECK_OK(self, dsc_comm_set_timeout(self->world, 300));
  PASS_ON(ranks_meet(self));
  if (self->rank == 1) return ranks_meet(self); /* arrives after everything has failed */
  memory_t memory;
  dsc_work_t* work = NULL;
  PASS_ON(open_memory(self, &memory, self->world));
  CHECK_OK(self, sum(&memory, &work));
  PASS_ON(check_failure(self, work, DSC_ERR_TIMEOUT, 1, QUICKLY_MS));
  PASS_ON(check_free(self));
  return ranks_meet(self);
}

/* Like late_body, but the operation has no work that observes its end. The error still names the rank that
 * has not called it. */
static int late_on_stream_body(rank_t* self) {
  PASS_ON(check_sum(self, self->world));
  CHECK_OK(self, dsc_comm_set_timeout(self->world, 300));
  PASS_ON(ranks_meet(self));
  if (self->rank == 1) return ranks_meet(self);
  memory_t memory;
  PASS_ON(open_memory(self, &memory, self->world));
  CHECK_OK(self, sum(&memory, NULL));
  CHECK(self, gpu_synchronize(NULL));
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_comm_error_info(self->world, &info));
  CHECK(self, info.code == DSC_ERR_TIMEOUT && info.rank == 1);
  CHECK(self, strstr(info.text, "rank 1 has not called this operation") != NULL);
  PASS_ON(check_free(self));
  return ranks_meet(self);
}

/* The first message arrives, the second is never sent. The operation has no work that observes its end. */
static int late_message_body(rank_t* self) {
  memory_t memory;
  PASS_ON(open_memory(self, &memory, self->world));
  if (self->rank == 1) {
    CHECK_OK(self, dsc_send(self->world, memory.data, COUNT, DSC_DTYPE_F32, 0, NULL, NULL));
    CHECK(self, gpu_synchronize(NULL));
    return ranks_meet(self);
  }
  CHECK_OK(self, dsc_recv(self->world, memory.data, COUNT, DSC_DTYPE_F32, 1, NULL, NULL));
  CHECK(self, gpu_synchronize(NULL));
  CHECK_OK(self, dsc_comm_set_timeout(self->world, 300));
  CHECK_OK(self, dsc_recv(self->world, memory.data, COUNT, DSC_DTYPE_F32, 1, NULL, NULL));
  const int64_t begin = now_ms();
  CHECK(self, gpu_synchronize(NULL));
  CHECK(self, now_ms() - begin < QUICKLY_MS);
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_comm_error_info(self->world, &info));
  if (info.code != DSC_ERR_TIMEOUT || info.rank != 1 ||
      strstr(info.text, "rank 1 has called 1 send to rank 0") == NULL)
    FAIL(self, "%d, rank %d: %s", info.code, info.rank, info.text);
  PASS_ON(check_free(self));
  return ranks_meet(self);
}

/* The work of the failed operation was destroyed, so the next call is the first to report the cause, on the
 * host or on the device. Later calls say that it was reported. */
static int unheld_body(rank_t* self) {
  const bool host_is_first = self->arg != NULL;
  memory_t memory;
  dsc_work_t* work = NULL;
  PASS_ON(open_memory(self, &memory, self->world));
  PASS_ON(check_sum(self, self->world));
  CHECK_OK(self, dsc_comm_set_timeout(self->world, 300));
  PASS_ON(ranks_meet(self));
  if (self->rank == 1) return ranks_meet(self);
  CHECK_OK(self, sum(&memory, &work));
  CHECK_OK(self, dsc_work_destroy(work));
  CHECK(self, gpu_synchronize(NULL));
  dsc_error_info_t info = {.struct_size = sizeof info};
  for (const int64_t begin = now_ms(); info.code == DSC_OK && now_ms() - begin < QUICKLY_MS; usleep(1000))
    CHECK_OK(self, dsc_comm_error_info(self->world, &info));
  usleep(100000); /* gives the watching thread time to end the work */
  if (host_is_first) CHECK_RESULT(self, DSC_ERR_TIMEOUT, dsc_barrier(self->world, NULL, NULL));
  CHECK_RESULT(self, host_is_first ? DSC_ERR_REVOKED : DSC_ERR_TIMEOUT, sum(&memory, NULL));
  CHECK_RESULT(self, DSC_ERR_REVOKED, sum(&memory, NULL));
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_barrier(self->world, NULL, NULL));
  return ranks_meet(self);
}

/* A first message in a group: the rank that has called it is not the one at fault. */
static int late_group_body(rank_t* self) {
  memory_t memory;
  PASS_ON(open_memory(self, &memory, self->world));
  PASS_ON(check_sum(self, self->world));
  CHECK_OK(self, dsc_comm_set_timeout(self->world, 300));
  PASS_ON(ranks_meet(self));
  if (self->rank == 1) return ranks_meet(self);
  CHECK_OK(self, dsc_batch_begin(self->world));
  CHECK_OK(self, dsc_send(self->world, memory.data, COUNT, DSC_DTYPE_F32, 1, NULL, NULL));
  CHECK_RESULT(self, DSC_ERR_TIMEOUT, dsc_batch_end(self->world, NULL, NULL));
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_comm_error_info(self->world, &info));
  if (info.code != DSC_ERR_TIMEOUT || info.rank != 1 ||
      strstr(info.text, "rank 1 has called 0 recvs from rank 0") == NULL)
    FAIL(self, "%s: %d, rank %d: %s", info.operation, info.code, info.rank, info.text);
  PASS_ON(check_free(self));
  return ranks_meet(self);
}

static void a_rank_that_does_not_come_is_named(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, late_group_body, NULL), 0);
  assert_int_equal(run_ranks(2, unheld_body, NULL), 0);
  assert_int_equal(run_ranks(2, unheld_body, "the host is first"), 0);
  assert_int_equal(run_ranks(2, late_message_body, NULL), 0);
  assert_int_equal(run_ranks(2, late_body, NULL), 0);
  assert_int_equal(run_ranks(2, late_on_stream_body, NULL), 0);
}

/* Rank 1 sums a different number of elements. The rank that calls second starts nothing, and the first rank
 * gets the error. */
static int mismatch_body(rank_t* self) {
  PASS_ON(check_sum(self, self->world));
  memory_t memory;
  dsc_work_t* work = NULL;
  PASS_ON(open_memory(self, &memory, self->world));
  const dsc_result_t result =
      dsc_all_reduce(self->world, memory.data, memory.data, COUNT - (size_t)self->rank, DSC_DTYPE_F32,
                     DSC_OP_SUM, NULL, &work);
  if (result == DSC_OK) return check_failure(self, work, DSC_ERR_MISMATCH, -1, QUICKLY_MS);
  CHECK(self, result == DSC_ERR_MISMATCH);
  CHECK(self, strstr(dsc_last_error_message(), "all_reduce(sum, f32, 999)") != NULL);
  CHECK(self, strstr(dsc_last_error_message(), "all_reduce(sum, f32, 1000)") != NULL);
  return check_free(self);
}

/* Rank 1 sums host memory. */
static int other_memory_body(rank_t* self) {
  memory_t memory;
  float here[COUNT] = {0};
  PASS_ON(check_sum(self, self->world));
  PASS_ON(open_memory(self, &memory, self->world));
  float* const data = self->rank == 1 ? here : memory.data;
  dsc_work_t* work = NULL;
  dsc_result_t result =
      dsc_all_reduce(self->world, data, data, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL, &work);
  if (result == DSC_OK) result = dsc_work_synchronize(work, -1);
  CHECK(self, result == DSC_ERR_MISMATCH);
  CHECK(self, strstr(dsc_last_error_message(), "in host memory") != NULL);
  return dsc_work_destroy(work);
}

static void a_mismatch_is_not_started(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, mismatch_body, NULL), 0);
  assert_int_equal(run_ranks(2, other_memory_body, NULL), 0);
}

static int left_body(rank_t* self) {
  PASS_ON(check_sum(self, self->world));
  PASS_ON(ranks_meet(self));
  if (self->rank == 1) return dsc_comm_destroy(self->world) != DSC_OK;
  memory_t memory;
  dsc_work_t* work = NULL;
  PASS_ON(open_memory(self, &memory, self->world));
  const dsc_result_t called = sum(&memory, &work);
  if (called == DSC_OK) return check_failure(self, work, DSC_ERR_PEER_LEFT, 1, QUICKLY_MS);
  CHECK(self, called == DSC_ERR_PEER_LEFT);
  return 0;
}

/* Rank 1 leaves instead of sending a second message. */
static int left_message_body(rank_t* self) {
  memory_t memory;
  PASS_ON(open_memory(self, &memory, self->world));
  if (self->rank == 1) {
    dsc_work_t* work = NULL;
    CHECK_OK(self, dsc_send(self->world, memory.data, COUNT, DSC_DTYPE_F32, 0, NULL, &work));
    CHECK_OK(self, dsc_work_synchronize(work, -1));
    CHECK_OK(self, dsc_work_destroy(work));
    PASS_ON(ranks_meet(self));
    return dsc_comm_destroy(self->world) != DSC_OK;
  }
  CHECK_OK(self, dsc_recv(self->world, memory.data, COUNT, DSC_DTYPE_F32, 1, NULL, NULL));
  CHECK(self, gpu_synchronize(NULL));
  PASS_ON(ranks_meet(self));
  const dsc_result_t called = dsc_recv(self->world, memory.data, COUNT, DSC_DTYPE_F32, 1, NULL, NULL);
  CHECK(self, called == DSC_OK || called == DSC_ERR_PEER_LEFT);
  CHECK(self, gpu_synchronize(NULL));
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_comm_error_info(self->world, &info));
  if (info.code != DSC_ERR_PEER_LEFT || info.rank != 1) FAIL(self, "%d: %s", info.code, info.text);
  return 0;
}

static void a_rank_that_leaves_is_named(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, left_message_body, NULL), 0);
  assert_int_equal(run_ranks(2, left_body, NULL), 0);
}

/* --- injected into a fake */

static int async_error_body(rank_t* self) {
  PASS_ON(check_sum(self, self->world));
  PASS_ON(ranks_meet(self));
  memory_t memory;
  dsc_work_t* work = NULL;
  PASS_ON(open_memory(self, &memory, self->world));
  const dsc_result_t expected = self->rank == 1 ? DSC_ERR_BACKEND : DSC_ERR_REVOKED;
  const dsc_result_t called = sum(&memory, &work); /* the error may arrive before the call returns */
  if (called == DSC_OK)
    PASS_ON(check_failure(self, work, expected, 1, QUICKLY_MS));
  else
    CHECK(self, called == expected);
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_comm_error_info(self->world, &info));
  CHECK(self, info.native_code == 6); /* ncclRemoteError of rank 1, on all ranks */
  PASS_ON(check_free(self));
  return next_world(self);
}

/* E1 of the faults in reliability.md: NCCL may report an error late. */
static void an_error_that_nccl_reports_late_ends_all(void** state) {
  (void)state;
  if (gpu_is_real()) skip();
  run_with_fault("remote_error@1#2", 2, NULL, async_error_body, 0);
}

static int plain_body(rank_t* self) { return check_sum(self, self->world); }

static int failing_start_body(rank_t* self) {
  const int64_t begin = now_ms();
  CHECK_RESULT(self, DSC_ERR_BACKEND, dsc_init_distributed(&self->options, &self->world));
  CHECK(self, strstr(dsc_last_error_message(), "ncclCommInitRankConfig") != NULL);
  CHECK(self, now_ms() - begin < RANKS_TIMEOUT_MS / 2); /* no rank waits for the deadline */
  return 0;
}

/* The first attempt may take half of the time-out. */
static void hasty(rank_t* self) { self->options.init_timeout_ms = self->options.timeout_ms = 12000; }

/* E3: start-up is repeated once with a new id, within the deadline. */
static void a_start_up_that_fails_is_tried_twice(void** state) {
  (void)state;
  if (gpu_is_real()) skip();
  run_with_fault("init_fail@1#1", 2, NULL, plain_body, 0);
  run_with_fault("init_hang@0#1", 2, hasty, plain_body, 0);
  setenv("FAKE_NCCL_FAULT", "init_fail@1", 1);
  assert_int_equal(run_without_world(2, failing_start_body, NULL), 0);
  unsetenv("FAKE_NCCL_FAULT");
}

/* Both ranks have called the message, but NCCL makes no connection. The error must not say that a rank has
 * not called it. */
static int unconnected_body(rank_t* self) {
  memory_t memory;
  PASS_ON(open_memory(self, &memory, self->world));
  const dsc_result_t result = self->rank == 0
                                  ? dsc_send(self->world, memory.data, COUNT, DSC_DTYPE_F32, 1, NULL, NULL)
                                  : dsc_recv(self->world, memory.data, COUNT, DSC_DTYPE_F32, 0, NULL, NULL);
  if (result != DSC_ERR_TIMEOUT ||
      strstr(dsc_last_error_message(), "all ranks that answered have called this operation") == NULL ||
      strstr(dsc_last_error_message(), "not called") != NULL)
    FAIL(self, "%d: %s", result, dsc_last_error_message());
  return 0;
}

static void a_message_that_is_not_connected_blames_nobody(void** state) {
  (void)state;
  if (gpu_is_real()) skip();
  run_with_fault("init_hang#2", 2, hasty, unconnected_body, 0);
}

static int split_body(rank_t* self) {
  dsc_comm_t* half = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, self->rank % 2, 0, NULL, &half));
  PASS_ON(check_sum(self, half));
  CHECK_OK(self, dsc_comm_finalize(half));
  return dsc_comm_destroy(half);
}

static int broken_split_body(rank_t* self) {
  dsc_comm_t* half = NULL;
  CHECK_RESULT(self, DSC_ERR_BACKEND, dsc_comm_split(self->world, self->rank % 2, 0, NULL, &half));
  if (strstr(dsc_last_error_message(), "rank 2") == NULL ||
      strstr(dsc_last_error_message(), "of split") == NULL)
    FAIL(self, "rank 2 is not named: %s", dsc_last_error_message());
  return check_free(self);
}

/* Groups are made by ncclCommSplit, which starts nothing up. If it fails, NCCL's communicator is unusable.
 */
static void groups_are_split(void** state) {
  (void)state;
  if (gpu_is_real()) skip();
  run_with_fault("init_fail#2;init_fail#3", 4, NULL, split_body, 0);
  run_with_fault("split_fail@2", 4, NULL, broken_split_body, 0);
}

/* NCCL's finalize hangs on rank 0, which does not notice. The communicator is aborted after its time-out. */
static int held_back_body(rank_t* self) {
  dsc_comm_t* group = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  PASS_ON(check_sum(self, group));
  void* memory = NULL;
  CHECK_OK(self, dsc_mem_alloc(group, COUNT, DSC_MEMORY_KIND_DEVICE, &memory));
  CHECK_OK(self, dsc_comm_set_timeout(group, 4000));
  const int64_t begin = now_ms();
  CHECK_OK(self, dsc_comm_destroy(group));
  CHECK_OK(self, dsc_mem_free(memory));
  CHECK(self, now_ms() - begin < 3900);
  PASS_ON(check_sum(self, self->world));
  usleep(4300000);
  return next_world(self);
}

static void who_is_held_back_goes_on(void** state) {
  (void)state;
  if (gpu_is_real()) skip();
  run_with_fault("finalize_hang@0#1", 2, NULL, held_back_body, 0);
}

static int stuck_body(rank_t* self) {
  PASS_ON(check_sum(self, self->world));
  memory_t memory;
  dsc_work_t* work = NULL;
  PASS_ON(open_memory(self, &memory, self->world));
  if (self->rank == 1) {
    PASS_ON(ranks_meet(self));
    usleep(300000);
    CHECK_OK(self, dsc_comm_abort(self->world));
    sleep(30); /* as long as rank 0 needs; the time limit of ranks_meet() begins afterwards */
    PASS_ON(ranks_meet(self));
    _exit(ranks_meet(self));
  }
  CHECK_OK(self, sum(&memory, &work));
  PASS_ON(ranks_meet(self));
  CHECK_RESULT(self, DSC_ERR_BACKEND_STUCK, dsc_work_synchronize(work, -1));
  PASS_ON(ranks_meet(self));
  CHECK(self, strstr(dsc_last_error_message(), "can no longer use the GPU") != NULL);
  CHECK_RESULT(self, DSC_ERR_BACKEND_STUCK, sum(&memory, NULL));
  dsc_init_options_t alone = self->options;
  dsc_comm_t* next = NULL;
  alone.job_id = "alone";
  alone.rank = 0;
  alone.world_size = 1;
  CHECK_OK(self, dsc_comm_destroy(self->world));
  CHECK_RESULT(self, DSC_ERR_BACKEND_STUCK, dsc_init_distributed(&alone, &next));
  _exit(ranks_meet(self)); /* as the message says, the process must end */
}

/* E4. */
static void an_abort_that_hangs_is_given_up(void** state) {
  (void)state;
  if (gpu_is_real()) skip();
  run_with_fault("abort_hang", 2, NULL, stuck_body, 0);
}

static int sticky_body(rank_t* self) {
  PASS_ON(check_sum(self, self->world));
  memory_t memory;
  PASS_ON(open_memory(self, &memory, self->world));
  for (int i = 0; i < 100; ++i) {
    dsc_work_t* work = NULL;
    gpu_upload(memory.data, &i, sizeof i); /* FAKE_CUDA_STICKY_AT makes one of these calls fail */
    dsc_result_t result = sum(&memory, &work);
    if (result == DSC_OK) result = dsc_work_synchronize(work, -1);
    dsc_work_destroy(work);
    if (result == DSC_OK) continue;
    CHECK(self, result == DSC_ERR_BACKEND || result == DSC_ERR_REVOKED);
    CHECK(self, strstr(dsc_last_error_message(), "can no longer use the GPU: restart it") != NULL);
    return 0;
  }
  FAIL(self, "nothing failed");
}

/* E5. */
static void a_broken_context_is_told(void** state) {
  (void)state;
  if (gpu_is_real()) skip();
  setenv("FAKE_CUDA_STICKY_AT", "20", 1);
  assert_int_equal(run_ranks(2, sticky_body, NULL), 0);
  unsetenv("FAKE_CUDA_STICKY_AT");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(survivors_name_a_killed_rank_and_go_on),
      cmocka_unit_test(survivors_name_a_stopped_rank),
      cmocka_unit_test(a_rank_that_does_not_come_is_named),
      cmocka_unit_test(a_mismatch_is_not_started),
      cmocka_unit_test(a_rank_that_leaves_is_named),
      cmocka_unit_test(an_error_that_nccl_reports_late_ends_all),
      cmocka_unit_test(a_start_up_that_fails_is_tried_twice),
      cmocka_unit_test(a_message_that_is_not_connected_blames_nobody),
      cmocka_unit_test(groups_are_split),
      cmocka_unit_test(who_is_held_back_goes_on),
      cmocka_unit_test(an_abort_that_hangs_is_given_up),
      cmocka_unit_test(a_broken_context_is_told),
  };
  return cmocka_run_group_tests_name("gpu_faults", tests, NULL, NULL);
}
