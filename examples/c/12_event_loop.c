/*
 * A program with its own event loop. The library has no progress thread here: the loop drives its operations
 * between events. Each operation has a descriptor that becomes readable when the operation completes.
 *
 *   dscrun -n 4 -- ./12_event_loop
 */
#define _POSIX_C_SOURCE 200809L /* CLOCK_MONOTONIC */
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { COUNT = 1 << 16, OPERATIONS = 16, MOST_EVENTS = 8, STEP_MS = 1, TICK_NS = 500000 };

typedef struct operation {
  dsc_work_t* work;
  float* values;
} operation_t;

static void watch(int loop, int descriptor, operation_t* operation) {
  struct epoll_event wish = {.events = EPOLLIN, .data.ptr = operation};
  EXPECT(epoll_ctl(loop, EPOLL_CTL_ADD, descriptor, &wish) == 0);
}

/* Stands for other work of the program: here, a timer whose ticks are counted. */
static int start_timer(int loop) {
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  EXPECT(timer >= 0);
  const struct itimerspec every = {.it_interval.tv_nsec = TICK_NS, .it_value.tv_nsec = TICK_NS};
  EXPECT(timerfd_settime(timer, 0, &every, NULL) == 0);
  watch(loop, timer, NULL);
  return timer;
}

static void start(int loop, dsc_comm_t* world, int32_t rank, operation_t* operation) {
  operation->values = malloc(COUNT * sizeof *operation->values);
  EXPECT(operation->values != NULL);
  for (size_t i = 0; i < COUNT; i++) operation->values[i] = (float)rank;
  CHECK(dsc_all_reduce(world, operation->values, operation->values, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL,
                       &operation->work));
  int32_t descriptor = -1;
  CHECK(dsc_work_eventfd(operation->work, &descriptor));
  watch(loop, descriptor, operation);
}

/* Called when the operation's descriptor is readable. Takes the result, or reports the failure. Destroying
 * the operation removes the descriptor from the loop. */
static float finish(operation_t* operation) {
  CHECK(dsc_work_wait(operation->work, 0, NULL));
  CHECK(dsc_work_destroy(operation->work));
  const float value = operation->values[COUNT - 1];
  free(operation->values);
  return value;
}

int main(void) {
  dsc_comm_t* world = NULL;
  dsc_init_options_t options;
  CHECK(dsc_init_options_init(&options, sizeof options));
  options.progress_thread = 0;
  CHECK(dsc_init_distributed(&options, &world));
  int32_t rank = -1;
  CHECK(dsc_comm_rank(world, &rank));

  const int loop = epoll_create1(EPOLL_CLOEXEC);
  EXPECT(loop >= 0);
  const int timer = start_timer(loop);
  operation_t operations[OPERATIONS];
  for (int i = 0; i < OPERATIONS; i++) start(loop, world, rank, &operations[i]);

  uint64_t ticks = 0;
  float sum = 0;
  for (int running = OPERATIONS; running > 0;) {
    const dsc_result_t left = dsc_comm_progress(world, 0); /* one step of every operation that can continue */
    EXPECT(left == DSC_OK || left == DSC_IN_PROGRESS);
    struct epoll_event events[MOST_EVENTS];
    const int ready = epoll_wait(loop, events, MOST_EVENTS, left == DSC_OK ? -1 : STEP_MS);
    for (int i = 0; i < ready; i++) {
      uint64_t expired = 0;
      if (events[i].data.ptr != NULL) {
        sum += finish(events[i].data.ptr);
        running--;
      } else if (read(timer, &expired, sizeof expired) == sizeof expired) {
        ticks += expired;
      }
    }
  }
  printf("rank %d: sums of %.0f; the timer ticked meanwhile: %s\n", rank, (double)sum,
         ticks > 0 ? "yes" : "no");

  close(timer);
  close(loop);
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
