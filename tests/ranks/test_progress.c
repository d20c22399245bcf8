/* Worlds without a progress thread. Many operations on many groups at the same time, with the thread and
 * without it. */
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "cmocka_c.h"
#include "reference.h"
#include "traffic.h"

enum { KIB = 1024, GROUPS = 8, PER_GROUP = 100, PART_BYTES = 8 * KIB };

static void without_thread(rank_t* self) { self->options.progress_thread = 0; }

/* Counts the threads of this process that have the name of the library's thread. */
static int progress_threads(void) {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  for (const struct dirent* entry = NULL; tasks != NULL && (entry = readdir(tasks)) != NULL;) {
    char path[300];
    char name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    FILE* file = fopen(path, "r");
    if (file == NULL) continue;
    if (fgets(name, sizeof name, file) != NULL) count += strcmp(name, "dsc-progress\n") == 0;
    fclose(file);
  }
  closedir(tasks);
  return count;
}

static int is_readable(int descriptor, int timeout_ms) {
  struct pollfd entry = {.fd = descriptor, .events = POLLIN};
  return poll(&entry, 1, timeout_ms) == 1 && (entry.revents & POLLIN) != 0;
}

/* --- Without calls nothing moves. Rank 0 receives what rank 1 sends. */

static int alone_body(rank_t* self) {
  enum { COUNT = 300 * KIB };
  char* bytes = calloc(COUNT, 1);
  CHECK(self, bytes != NULL);
  if (self->rank == 1) {
    memset(bytes, 'b', COUNT);
    CHECK_OK(self, dsc_send(self->world, bytes, COUNT, DSC_DTYPE_U8, 0, NULL, NULL));
    free(bytes);
    return 0;
  }
  dsc_work_t* work = NULL;
  int32_t descriptor = -1;
  int32_t completed = 0;
  CHECK_OK(self, dsc_comm_progress(self->world, 0)); /* there is nothing to do */
  CHECK_OK(self, dsc_recv(self->world, bytes, COUNT, DSC_DTYPE_U8, 1, NULL, &work));
  CHECK_OK(self, dsc_work_eventfd(work, &descriptor));
  CHECK(self, !is_readable(descriptor, 50));
  CHECK(self, progress_threads() == 0);
  for (int i = 0; i < 10000 && dsc_comm_progress(self->world, 0) == DSC_IN_PROGRESS; ++i) usleep(1000);
  CHECK(self, is_readable(descriptor, 0));
  CHECK_OK(self, dsc_work_test(work, &completed));
  CHECK(self, completed == 1 && bytes[0] == 'b' && bytes[COUNT - 1] == 'b');
  CHECK_OK(self, dsc_work_destroy(work));
  free(bytes);
  return 0;
}

static void nothing_moves_by_itself(void** state) {
  (void)state;
  assert_int_equal(run_ranks_with(2, without_thread, alone_body, NULL), 0);
}

/* --- A blocking call drives all queued operations. Otherwise these programs would be deadlocks.
 */

static int crossed_body(rank_t* self) {
  enum { COUNT = 100 * KIB };
  dsc_comm_t* group = NULL;
  float* a = calloc(COUNT, sizeof *a);
  float* b = calloc(COUNT, sizeof *b);
  CHECK(self, a != NULL && b != NULL);
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  dsc_comm_t* first = self->rank == 0 ? self->world : group;
  dsc_comm_t* second = self->rank == 0 ? group : self->world;
  float* of_first = self->rank == 0 ? a : b;
  float* of_second = self->rank == 0 ? b : a;
  for (int i = 0; i < 10; ++i) {
    dsc_work_t* work = NULL;
    dsc_work_t* message = NULL;
    CHECK_OK(self, dsc_all_reduce(first, of_first, of_first, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL, &work));
    CHECK_OK(self,
             dsc_all_reduce(second, of_second, of_second, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
    CHECK_OK(self, dsc_work_wait(work, -1, NULL));
    CHECK_OK(self, dsc_work_destroy(work));
    if (self->rank == 0) {
      CHECK_OK(self, dsc_send(group, a, COUNT, DSC_DTYPE_F32, 1, NULL, &message));
      CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
      CHECK_OK(self, dsc_work_wait(message, -1, NULL));
    } else {
      CHECK_OK(self, dsc_recv(group, b, COUNT, DSC_DTYPE_F32, 0, NULL, NULL));
      CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
    }
    CHECK_OK(self, dsc_work_destroy(message));
  }
  CHECK_OK(self, dsc_comm_destroy(group));
  free(a);
  free(b);
  return 0;
}

static void a_blocking_call_drives_the_rest(void** state) {
  (void)state;
  assert_int_equal(run_ranks_with(2, without_thread, crossed_body, NULL), 0);
  assert_int_equal(run_ranks(2, crossed_body, NULL), 0);
}

/* --- Agreeing and shrinking drive them too: rank 1 joins only after it has the message. */

static int agreed_body(rank_t* self) {
  enum { BYTES = 16 * KIB * KIB };
  char* bytes = calloc(BYTES, 1);
  CHECK(self, bytes != NULL);
  for (int turn = 0; turn < 2; ++turn) {
    dsc_work_t* work = NULL;
    dsc_comm_t* group = NULL;
    int32_t agreed = 0;
    if (self->rank == 0) {
      memset(bytes, 'a' + turn, BYTES);
      CHECK_OK(self, dsc_send(self->world, bytes, BYTES, DSC_DTYPE_U8, 1, NULL, &work));
    } else {
      CHECK_OK(self, dsc_recv(self->world, bytes, BYTES, DSC_DTYPE_U8, 0, NULL, NULL));
    }
    if (turn == 0) {
      CHECK_OK(self, dsc_comm_agree(self->world, 6 + self->rank, &agreed));
      CHECK(self, agreed == 6);
    } else {
      CHECK_OK(self, dsc_comm_shrink(self->world, NULL, &group));
      CHECK_OK(self, dsc_barrier(group, NULL, NULL));
      CHECK_OK(self, dsc_comm_destroy(group));
    }
    CHECK(self, bytes[0] == 'a' + turn && bytes[BYTES - 1] == 'a' + turn);
    if (work != NULL) CHECK_OK(self, dsc_work_wait(work, -1, NULL));
    CHECK_OK(self, dsc_work_destroy(work));
  }
  free(bytes);
  return 0;
}

typedef struct watch {
  rank_t* self;
  int32_t descriptor;
} watch_t;

static void* note_when_readable(void* opaque) {
  const watch_t* it = opaque;
  if (is_readable(it->descriptor, 50000)) ranks_note(it->self, 1);
  return NULL;
}

/* What rank 0 has queued ends at its time-out, while rank 0 waits for an answer. Rank 1 joins only then. */
static int late_answer_body(rank_t* self) {
  dsc_comm_t* group = NULL;
  dsc_work_t* work = NULL;
  int32_t agreed = 0;
  watch_t watch = {self, -1};
  pthread_t thread;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  CHECK_OK(self, dsc_comm_set_timeout(group, 100));
  if (self->rank == 0) {
    CHECK_OK(self, dsc_barrier(group, NULL, &work));
    CHECK_OK(self, dsc_work_eventfd(work, &watch.descriptor));
    CHECK(self, pthread_create(&thread, NULL, note_when_readable, &watch) == 0);
  } else {
    PASS_ON(ranks_await(self, 1));
  }
  CHECK_OK(self, dsc_comm_agree(self->world, 1, &agreed));
  if (self->rank == 0) {
    pthread_join(thread, NULL);
    dsc_error_info_t info = {.struct_size = sizeof info};
    CHECK_OK(self, dsc_work_error_info(work, &info));
    CHECK(self, info.code == DSC_ERR_TIMEOUT && info.elapsed_ns >= 100000000);
    CHECK_OK(self, dsc_work_destroy(work));
  }
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

static void agreeing_drives_the_rest(void** state) {
  (void)state;
  assert_int_equal(run_ranks_with(2, without_thread, agreed_body, NULL), 0);
  assert_int_equal(run_ranks(2, agreed_body, NULL), 0);
  assert_int_equal(run_ranks_with(2, without_thread, late_answer_body, NULL), 0);
}

/* --- A program that only polls sees time-outs and departures. */

static int late_body(rank_t* self) {
  dsc_comm_t* group = NULL;
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  CHECK_OK(self, dsc_comm_set_timeout(group, 100));
  if (self->rank == 0) {
    CHECK_OK(self, dsc_barrier(group, NULL, &work));
    const int64_t start = now_ms();
    while (dsc_comm_progress(group, 0) == DSC_IN_PROGRESS && now_ms() - start < 10000) usleep(500);
    CHECK_RESULT(self, DSC_ERR_TIMEOUT, dsc_work_wait(work, 0, NULL));
    CHECK_OK(self, dsc_work_destroy(work));
  }
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

static int deserted_body(rank_t* self) {
  dsc_comm_t* group = NULL;
  dsc_work_t* works[3] = {NULL};
  char byte = 0;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  if (self->rank == 0) {
    for (int i = 0; i < 2; ++i) CHECK_OK(self, dsc_barrier(group, NULL, &works[i]));
    CHECK_OK(self, dsc_recv(group, &byte, 1, DSC_DTYPE_U8, 1, NULL, &works[2]));
  }
  CHECK_OK(self, dsc_comm_destroy(group)); /* ends the queued operations, although nothing drives them */
  for (int i = 0; i < 3 && self->rank == 0; ++i) {
    dsc_error_info_t info = {.struct_size = sizeof info};
    CHECK_OK(self, dsc_work_error_info(works[i], &info));
    CHECK(self, info.code < 0);
    CHECK_OK(self, dsc_work_destroy(works[i]));
  }
  CHECK_OK(self, dsc_comm_progress(self->world, -1));
  return 0;
}

static void failures_reach_who_only_polls(void** state) {
  (void)state;
  assert_int_equal(run_ranks_with(2, without_thread, late_body, NULL), 0);
  assert_int_equal(run_ranks_with(2, without_thread, deserted_body, NULL), 0);
}

/* --- Many operations on many groups. Every rank submits the groups in a different order. */

typedef enum { WAIT, TEST, PROGRESS, PROGRESS_OF_ALL, EPOLL, MANNERS } manner_t;

typedef struct flight {
  arena_t arena;
  operation_t operation;
  buffers_t buffers;
  dsc_work_t* work; /* NULL if this rank does not take part */
} flight_t;

typedef struct fleet {
  rank_t* self;
  arena_t memory;
  dsc_comm_t* groups[GROUPS];
  flight_t flights[GROUPS][PER_GROUP];
} fleet_t;

static size_t per_group(void) { return PER_GROUP / (test_scale() < 4 ? test_scale() : 4); }

/* Draws the same on all ranks, except for the ends of a message. */
static operation_t draw(size_t group, size_t index, int32_t rank, int32_t size) {
  uint64_t random = group * 1000 + index;
  operation_t it = {.dtype = DSC_DTYPE_F32, .op = DSC_OP_SUM};
  it.kind = (kind_t)(next_random(&random) % KINDS);
  it.layout = (layout_t)(next_random(&random) % LAYOUTS);
  it.seed = next_random(&random) >> 8;
  it.count = next_random(&random) % (PART_BYTES / sizeof(float) / (size_t)size);
  const int32_t from = (int32_t)(next_random(&random) % (uint64_t)size);
  const int32_t to = (from + 1) % size;
  it.root = from;
  if (it.kind != SEND && it.kind != RECV) return it;
  it.kind = rank == from ? SEND : rank == to ? RECV : KINDS;
  it.root = rank == from ? to : from;
  return it;
}

static int launch(fleet_t* fleet, size_t group, size_t index) {
  flight_t* it = &fleet->flights[group][index];
  rank_t* self = fleet->self;
  it->operation = draw(group, index, self->rank, self->size);
  if (it->operation.kind == KINDS) return 0;
  it->arena = arena_part(&fleet->memory, group * per_group() + index, GROUPS * per_group());
  it->arena.comm = fleet->groups[group];
  it->buffers = prepare(&it->arena, &it->operation);
  CHECK_OK(self, call(it->arena.comm, &it->operation, &it->buffers, &it->work));
  return 0;
}

static int launch_all(fleet_t* fleet) {
  const bool forward = fleet->self->rank % 2 == 0;
  const bool by_group = fleet->self->rank % 4 < 2;
  for (size_t i = 0; i < GROUPS * per_group(); ++i) {
    const size_t group = by_group ? i / per_group() : i % GROUPS;
    const size_t index = by_group ? i % per_group() : i / GROUPS;
    PASS_ON(launch(fleet, forward ? group : GROUPS - 1 - group, index));
  }
  return 0;
}

static flight_t* flight_at(fleet_t* fleet, size_t i) { return &fleet->flights[i % GROUPS][i / GROUPS]; }

static int await_descriptors(fleet_t* fleet) {
  rank_t* self = fleet->self;
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  CHECK(self, loop >= 0);
  size_t open = 0;
  for (size_t i = 0; i < GROUPS * per_group(); ++i) {
    flight_t* it = flight_at(fleet, i);
    int32_t descriptor = -1;
    if (it->work == NULL) continue;
    CHECK_OK(self, dsc_work_eventfd(it->work, &descriptor));
    struct epoll_event wish = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = it};
    CHECK(self, epoll_ctl(loop, EPOLL_CTL_ADD, descriptor, &wish) == 0);
    ++open;
  }
  const bool has_thread = self->options.progress_thread != 0;
  for (const int64_t start = now_ms(); open > 0 && now_ms() - start < 60000;) {
    struct epoll_event events[16];
    if (!has_thread) CHECK(self, dsc_comm_progress(self->world, 0) >= 0);
    const int ready = epoll_wait(loop, events, 16, has_thread ? 1000 : 0);
    for (int i = 0; i < ready; ++i) {
      const flight_t* it = events[i].data.ptr;
      CHECK_OK(self, dsc_work_wait(it->work, 0, NULL));
      --open;
    }
  }
  close(loop);
  CHECK(self, open == 0);
  return 0;
}

static int await_all(fleet_t* fleet, manner_t manner) {
  rank_t* self = fleet->self;
  dsc_result_t result = DSC_IN_PROGRESS;
  int32_t completed = 0;
  switch (manner) {
    case EPOLL:
      return await_descriptors(fleet);
    case PROGRESS:
      while (result == DSC_IN_PROGRESS) result = dsc_comm_progress(fleet->groups[3], -1);
      CHECK_RESULT(self, DSC_OK, result);
      return 0;
    case PROGRESS_OF_ALL: /* ranks that are threads drive each other's operations */
      while (result == DSC_IN_PROGRESS) result = dsc_comm_progress(NULL, 1);
      CHECK_RESULT(self, DSC_OK, result);
      return 0;
    default:
      for (size_t i = GROUPS * per_group(); i-- > 0; completed = 0) {
        dsc_work_t* work = flight_at(fleet, i)->work;
        if (work == NULL) continue;
        while (manner == TEST && completed == 0) CHECK_OK(self, dsc_work_test(work, &completed));
        if (manner == WAIT) CHECK_OK(self, dsc_work_wait(work, -1, NULL));
      }
      return 0;
  }
}

static int fleet_body(rank_t* self) {
  const manner_t manner = *(const manner_t*)self->arg;
  fleet_t* fleet = calloc(1, sizeof *fleet);
  CHECK(self, fleet != NULL);
  fleet->self = self;
  PASS_ON(arena_open(&fleet->memory, self, self->world, (PART_BYTES + 4 * KIB) * GROUPS * per_group()));
  for (int i = 0; i < GROUPS; ++i) CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &fleet->groups[i]));
  PASS_ON(launch_all(fleet));
  PASS_ON(await_all(fleet, manner));
  for (size_t i = 0; i < GROUPS * per_group(); ++i) {
    flight_t* it = flight_at(fleet, i);
    if (it->work == NULL) continue;
    CHECK_OK(self, dsc_work_wait(it->work, 0, NULL));
    PASS_ON(verify(&it->arena, &it->operation, &it->buffers));
    CHECK_OK(self, dsc_work_destroy(it->work));
  }
  for (int i = 0; i < GROUPS; ++i) CHECK_OK(self, dsc_comm_destroy(fleet->groups[i]));
  const int failed = arena_close(&fleet->memory);
  free(fleet);
  return failed;
}

static void many_operations_on_many_groups(void** state) {
  (void)state;
  for (manner_t manner = WAIT; manner < MANNERS; ++manner) {
    assert_int_equal(run_ranks_with(4, without_thread, fleet_body, &manner), 0);
    assert_int_equal(run_ranks(4, fleet_body, &manner), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_moves_by_itself), /* must be first, because other tests may start the thread */
      cmocka_unit_test(a_blocking_call_drives_the_rest), cmocka_unit_test(agreeing_drives_the_rest),
      cmocka_unit_test(failures_reach_who_only_polls),   cmocka_unit_test(many_operations_on_many_groups),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
