/* Operations that are started and run in the background. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "gpu.h"
#include "reference.h"
#include "traffic.h"

enum { KIB = 1024 };

static int error_code(rank_t* self, dsc_work_t* work, int32_t expected) {
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_work_error_info(work, &info));
  CHECK(self, info.struct_size == sizeof info);
  if (info.code != expected) FAIL(self, "dsc_work_error_info tells %d, expected %d", info.code, expected);
  return 0;
}

static int is_completed(rank_t* self, dsc_work_t* work, int32_t expected) {
  int32_t completed = -1;
  CHECK_OK(self, dsc_work_test(work, &completed));
  CHECK(self, completed == expected);
  return 0;
}

static int is_readable(int descriptor, int timeout_ms) {
  struct pollfd entry = {.fd = descriptor, .events = POLLIN};
  int ready = -1;
  do ready = poll(&entry, 1, timeout_ms);
  while (ready < 0 && errno == EINTR);
  return ready == 1 && (entry.revents & POLLIN) != 0;
}

/* While the operation runs, every query is answered, and no query ends the operation. */
static int check_running(rank_t* self, dsc_work_t* work, int32_t* descriptor) {
  int32_t again = -1;
  PASS_ON(is_completed(self, work, 0));
  CHECK_RESULT(self, DSC_IN_PROGRESS, dsc_work_wait(work, 0, NULL));
  CHECK_RESULT(self, DSC_IN_PROGRESS, dsc_work_synchronize(work, 0));
  const int64_t start = now_ms();
  CHECK_RESULT(self, DSC_IN_PROGRESS, dsc_work_wait(work, 40, NULL));
  CHECK(self, now_ms() - start >= 39);
  PASS_ON(error_code(self, work, DSC_IN_PROGRESS));
  CHECK_OK(self, dsc_work_eventfd(work, descriptor));
  CHECK_OK(self, dsc_work_eventfd(work, &again));
  CHECK(self, again == *descriptor);
  CHECK(self, !is_readable(*descriptor, 0));
  return 0;
}

static int check_succeeded(rank_t* self, dsc_work_t* work) {
  for (int i = 0; i < 2; ++i) {
    CHECK_OK(self, dsc_work_wait(work, -1, NULL));
    CHECK_OK(self, dsc_work_wait(work, 0, NULL));
    CHECK_OK(self, dsc_work_synchronize(work, 0));
  }
  PASS_ON(is_completed(self, work, 1));
  return error_code(self, work, DSC_OK);
}

static int life_body(rank_t* self) {
  char byte = self->rank == 1 ? 'b' : 'a';
  if (self->rank == 1) {
    CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
    CHECK_OK(self, dsc_send(self->world, &byte, 1, DSC_DTYPE_U8, 0, NULL, NULL));
    return 0;
  }
  dsc_work_t* work = NULL;
  int32_t descriptor = -1;
  CHECK_OK(self, dsc_recv(self->world, &byte, 1, DSC_DTYPE_U8, 1, NULL, &work));
  PASS_ON(check_running(self, work, &descriptor));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  /* no rank waits: the library's thread completes the operation */
  CHECK(self, is_readable(descriptor, 10000));
  PASS_ON(check_succeeded(self, work));
  CHECK(self, byte == 'b');
  CHECK(self, is_readable(descriptor, 0));
  CHECK_OK(self, dsc_work_destroy(work));
  CHECK(self, fcntl(descriptor, F_GETFD) == -1);
  CHECK_RESULT(self, DSC_ERR_BAD_HANDLE, dsc_work_wait(work, 0, NULL));
  CHECK_RESULT(self, DSC_ERR_BAD_HANDLE, dsc_work_destroy(work));
  return 0;
}

static void life_of_a_work(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, life_body, NULL), 0);
}

/* A descriptor that is requested after the end of the operation is readable immediately. */
static int late_descriptor_body(rank_t* self) {
  dsc_work_t* work = NULL;
  int32_t descriptor = -1;
  CHECK_OK(self, dsc_barrier(self->world, NULL, &work));
  CHECK_OK(self, dsc_work_wait(work, -1, NULL));
  CHECK_OK(self, dsc_work_eventfd(work, &descriptor));
  CHECK(self, is_readable(descriptor, 0));
  CHECK_OK(self, dsc_work_destroy(work));
  return 0;
}

static void descriptor_after_the_end(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, late_descriptor_body, NULL), 0);
}

/* Waits for all started collectives by a barrier, because collectives run in order. */
/* Runs a barrier after all started operations. On a device, started operations have a separate order. */
static int await_all(rank_t* self) {
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  if (!gpu_wanted()) return 0;
  void* const stream = gpu_stream();
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_barrier(self->world, stream, &work));
  CHECK_OK(self, dsc_work_synchronize(work, -1));
  CHECK_OK(self, dsc_work_destroy(work));
  gpu_stream_free(stream);
  return 0;
}

static int detached_body(rank_t* self) {
  enum { PIECES = 16 };
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, PIECES * 64 * KIB));
  operation_t operations[PIECES];
  buffers_t buffers[PIECES];
  for (size_t i = 0; i < PIECES; ++i) {
    const arena_t part = arena_part(&arena, i, PIECES);
    operations[i] = (operation_t){.kind = (kind_t)(i % BARRIER),
                                  .dtype = DSC_DTYPE_F32,
                                  .op = DSC_OP_SUM,
                                  .count = 1000 + i * 100,
                                  .layout = (layout_t)(i % LAYOUTS),
                                  .seed = i};
    buffers[i] = prepare(&part, &operations[i]);
    dsc_work_t* work = NULL;
    CHECK_OK(self, call(self->world, &operations[i], &buffers[i], &work));
    CHECK_OK(self, dsc_work_destroy(work));
  }
  PASS_ON(await_all(self));
  for (size_t i = 0; i < PIECES; ++i) {
    const arena_t part = arena_part(&arena, i, PIECES);
    PASS_ON(verify(&part, &operations[i], &buffers[i]));
  }
  return arena_close(&arena);
}

static void detached_work_completes(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, detached_body, NULL), 0);
}

static void* wait_in_thread(void* work) { return (void*)(intptr_t)dsc_work_wait(work, -1, NULL); }

/* Several threads may wait for one operation. */
static int waiters_body(rank_t* self) {
  enum { WAITERS = 3 };
  int32_t value = 1;
  dsc_work_t* work = NULL;
  pthread_t threads[WAITERS];
  if (self->rank == 1) CHECK_OK(self, dsc_recv(self->world, &value, 1, DSC_DTYPE_I32, 0, NULL, NULL));
  CHECK_OK(self, dsc_all_reduce(self->world, &value, &value, 1, DSC_DTYPE_I32, DSC_OP_SUM, NULL, &work));
  for (int i = 0; i < WAITERS; ++i) CHECK(self, pthread_create(&threads[i], NULL, wait_in_thread, work) == 0);
  const int32_t two = 2;
  if (self->rank == 0) CHECK_OK(self, dsc_send(self->world, &two, 1, DSC_DTYPE_I32, 1, NULL, NULL));
  int failed = 0;
  for (int i = 0; i < WAITERS; ++i) {
    void* result = NULL;
    pthread_join(threads[i], &result);
    failed += (intptr_t)result != DSC_OK;
  }
  CHECK(self, failed == 0);
  CHECK(self, value == 3);
  CHECK_OK(self, dsc_work_destroy(work));
  return 0;
}

static void several_threads_wait(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, waiters_body, NULL), 0);
}

/* A failed work keeps its failure. */
static int failure_body(rank_t* self) {
  dsc_comm_t* group = NULL;
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  if (self->rank == 0) {
    CHECK_OK(self, dsc_barrier(group, NULL, &work));
    CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
    for (int i = 0; i < 2; ++i) {
      CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_work_wait(work, -1, NULL));
      CHECK(self, strstr(dsc_last_error_message(), "dsc_work_wait: collective ") != NULL);
      CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_work_synchronize(work, 0));
    }
    PASS_ON(is_completed(self, work, 1));
    PASS_ON(error_code(self, work, DSC_ERR_REVOKED));
    CHECK_OK(self, dsc_work_destroy(work));
  } else {
    CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
    CHECK_OK(self, dsc_comm_abort(group));
    CHECK_OK(self, dsc_comm_abort(group));
  }
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_barrier(group, NULL, NULL));
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

static void failed_work_repeats_its_failure(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, failure_body, NULL), 0);
}

/* One thread receives from a late sender. Meanwhile another thread gets BUSY from the communicator. */
static void* receive_in_thread(void* comm) {
  char byte = 0;
  /* the receive itself may get BUSY while a refused call of the main thread is inside */
  dsc_result_t result = DSC_ERR_BUSY;
  while (result == DSC_ERR_BUSY) result = dsc_recv(comm, &byte, 1, DSC_DTYPE_U8, 1, NULL, NULL);
  return (void*)(intptr_t)(result == DSC_OK && byte == 'z' ? 0 : 1);
}

static int busy_body(rank_t* self) {
  dsc_comm_t* group = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  const char byte = 'z';
  if (self->rank == 1) {
    CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
    CHECK_OK(self, dsc_send(group, &byte, 1, DSC_DTYPE_U8, 0, NULL, NULL));
    CHECK_OK(self, dsc_comm_destroy(group));
    return 0;
  }
  pthread_t thread;
  CHECK(self, pthread_create(&thread, NULL, receive_in_thread, group) == 0);
  /* A wrong element type is an error only if no other thread is inside, and it has no other effect. */
  dsc_result_t result = DSC_ERR_INVALID_ARG;
  for (const int64_t start = now_ms(); result == DSC_ERR_INVALID_ARG && now_ms() - start < 10000;)
    result = dsc_all_reduce(group, NULL, NULL, 0, 0, DSC_OP_SUM, NULL, NULL);
  dsc_work_t* work = (dsc_work_t*)&thread;
  const dsc_result_t with_work = dsc_barrier(group, NULL, &work);
  int32_t rank = -1;
  const dsc_result_t query = dsc_comm_rank(group, &rank); /* queries are allowed on any thread, at any time */
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  void* wrong = NULL;
  pthread_join(thread, &wrong);
  CHECK(self, wrong == NULL);
  CHECK(self, result == DSC_ERR_BUSY && with_work == DSC_ERR_BUSY && work == NULL);
  CHECK(self, query == DSC_OK && rank == 0);
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

static void second_thread_is_busy(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, busy_body, NULL), 0);
}

/* One of several communicators that are used at the same time. */
typedef struct lane {
  rank_t self; /* a copy, so that each lane has its own failure text */
  char failure[1024];
  arena_t arena;
  int failed;
} lane_t;

static void* lane_thread(void* opaque) {
  lane_t* lane = opaque;
  int32_t device = -1;
  lane->failed = dsc_comm_device(lane->arena.comm, &device) != DSC_OK || (device >= 0 && !gpu_bind(device));
  const uint64_t repeats = (uint64_t)scaled_repetitions(200, 8, 20);
  for (uint64_t i = 0; i < repeats && lane->failed == 0; ++i) {
    const operation_t operation = {.kind = (kind_t)(i % SEND),
                                   .dtype = DSC_DTYPE_F32,
                                   .op = DSC_OP_AVG,
                                   .count = i % 7 * 900,
                                   .layout = (layout_t)(i % LAYOUTS),
                                   .seed = i};
    lane->failed = check_operation(&lane->arena, &operation);
  }
  return NULL;
}

static int lanes_body(rank_t* self) {
  enum { LANES = 3 };
  lane_t* lanes = calloc(LANES, sizeof *lanes);
  CHECK(self, lanes != NULL);
  pthread_t threads[LANES];
  for (int i = 0; i < LANES; ++i) {
    dsc_comm_t* group = NULL;
    CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
    lanes[i].self = *self;
    lanes[i].self.failure = lanes[i].failure;
    PASS_ON(arena_open(&lanes[i].arena, &lanes[i].self, group, 128 * KIB));
  }
  for (int i = 0; i < LANES; ++i) CHECK(self, pthread_create(&threads[i], NULL, lane_thread, &lanes[i]) == 0);
  for (int i = 0; i < LANES; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < LANES; ++i) {
    if (lanes[i].failed != 0) FAIL(self, "%s", lanes[i].failure);
    PASS_ON(arena_close(&lanes[i].arena));
    CHECK_OK(self, dsc_comm_destroy(lanes[i].arena.comm));
  }
  free(lanes);
  return 0;
}

static void communicators_at_once(void** state) {
  (void)state;
  if (gpu_wanted()) skip(); /* on a device the communicators would share one stream, and need one order */
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, lanes_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(life_of_a_work),
      cmocka_unit_test(descriptor_after_the_end),
      cmocka_unit_test(detached_work_completes),
      cmocka_unit_test(several_threads_wait),
      cmocka_unit_test(failed_work_repeats_its_failure),
      cmocka_unit_test(second_thread_is_busy),
      cmocka_unit_test(communicators_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
