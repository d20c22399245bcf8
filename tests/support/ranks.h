/*
 * Ranks for tests: threads of one process, or processes. A rank never asserts. It returns 0, or fails with a
 * text that the main thread prints. Only the main thread asserts on the number of failed ranks.
 */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include <dsc/dsc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  RANKS_MAX = 64,
  RANKS_TIMEOUT_MS = 60000 /* the time-out in the options of every rank; longer than a busy machine needs */
};

typedef struct ranks_shared ranks_shared_t;

typedef struct rank {
  int32_t rank;
  int32_t size;
  dsc_comm_t* world;
  const void* arg; /* as given; shared if ranks are threads, copied if they are processes */
  char* failure;   /* the text of this rank's first failure */
  dsc_init_options_t options;
  ranks_shared_t* shared;
} rank_t;

/* Returns 0, or what CHECK and rank_fail return. */
typedef int (*rank_body_t)(rank_t* self);

/* Changes a rank's options before the rank joins. May be NULL. */
typedef void (*rank_options_t)(rank_t* self);

/* Ranks are threads by default. They are processes if the environment has DSC_TEST_RANKS=processes, and on
 * real devices that several processes can share but several threads cannot. */
bool ranks_are_processes(void);
bool ranks_are_on_several_hosts(void); /* DSC_TEST_HOSTS simulates hosts by DSC_HOST_ID */

/* Repetitions and bytes are divided by this number, which is larger under sanitizers. DSC_TEST_SCALE=N
 * overrides it. */
size_t test_scale(void);

/* Divides the usual count by the scale, at most by `most_scale`, and then applies test_repetitions(). */
int scaled_repetitions(int usual, int most_scale, int least);

/* Runs `body` on every rank of a new world and ends the world. DSC_TEST_SIZE overrides the size. Returns the
 * number of ranks that failed. */
int run_ranks(int32_t size, rank_body_t body, const void* arg);
int run_ranks_with(int32_t size, rank_options_t options, rank_body_t body, const void* arg);

/* Like run_ranks(), but `body` creates the world itself from self->options. */
int run_without_world(int32_t size, rank_body_t body, const void* arg);

/* Keeps the text of the first failure. Returns 1. */
int rank_fail(rank_t* self, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 4, 5)));

int rank_expect_result(rank_t* self, const char* file, int line, const char* call, dsc_result_t expected,
                       dsc_result_t came);

/* Waits until all ranks have reached this call, without using the library. A rank that then aborts, leaves or
 * dies does not disturb a rank that has not yet noticed the end of the last operation. Returns 0, or fails.
 */
int ranks_meet(rank_t* self);

/* A number that all ranks share, 0 at first. ranks_await() waits until it is `wanted`, and returns 0 or
 * fails. */
void ranks_note(rank_t* self, int64_t number);
int ranks_await(rank_t* self, int64_t wanted);
int64_t ranks_noted(const rank_t* self);

int64_t now_ms(void);

/* Returns deterministic random numbers: SplitMix64. */
uint64_t next_random(uint64_t* state);

#define FAIL(self, ...) return rank_fail((self), __FILE__, __LINE__, __VA_ARGS__)

#define CHECK(self, condition)                                 \
  do {                                                         \
    if (!(condition)) FAIL((self), "expected %s", #condition); \
  } while (0)

#define CHECK_RESULT(self, expected, call)                                                        \
  do {                                                                                            \
    if (rank_expect_result((self), __FILE__, __LINE__, #call, (expected), (call)) != 0) return 1; \
  } while (0)

#define CHECK_OK(self, call) CHECK_RESULT(self, DSC_OK, call)

/* Returns from the body if the call has failed. */
#define PASS_ON(call)          \
  do {                         \
    if ((call) != 0) return 1; \
  } while (0)

#endif /* TESTS_SUPPORT_RANKS_H */
