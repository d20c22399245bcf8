/*
 * Ranks for tests: threads of one process, or processes. A rank never asserts; it returns 0, or fails with a
 * text that the main thread prints. Only the main thread asserts, on the number of ranks that failed.
 */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include <dsc/dsc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  RANKS_MAX = 64,
  RANKS_TIMEOUT_MS = 60000 /* of every rank's options: longer than a busy machine needs */
};

typedef struct ranks_shared ranks_shared_t;

typedef struct rank {
  int32_t rank;
  int32_t size;
  dsc_comm_t* world;
  const void* arg; /* as given; shared by ranks that are threads, copied for processes */
  char* failure;   /* text of this rank's first failure */
  dsc_init_options_t options;
  ranks_shared_t* shared;
} rank_t;

/* Returns 0, or what CHECK and rank_fail return. */
typedef int (*rank_body_t)(rank_t* self);

/* Changes a rank's options before it joins; may be NULL. */
typedef void (*rank_options_t)(rank_t* self);

/* Ranks are threads, or processes when the environment has DSC_TEST_RANKS=processes, or on real devices,
 * which several processes can share, but not several threads. */
bool ranks_are_processes(void);
bool ranks_are_on_several_hosts(void); /* DSC_TEST_HOSTS, told apart by DSC_HOST_ID */

/* Larger under sanitizers: repetitions and bytes are divided by it. DSC_TEST_SCALE=N overrides. */
size_t test_scale(void);

/* The usual count, divided by the scale or `most_scale`, and then as test_repetitions() has it. */
int scaled_repetitions(int usual, int most_scale, int least);

/* Runs `body` on every rank of a new world and ends the world. DSC_TEST_SIZE overrides the size. Gives the
 * number of ranks that failed. */
int run_ranks(int32_t size, rank_body_t body, const void* arg);
int run_ranks_with(int32_t size, rank_options_t options, rank_body_t body, const void* arg);

/* As run_ranks, but `body` makes the world itself, from self->options. */
int run_without_world(int32_t size, rank_body_t body, const void* arg);

/* Keeps the text of the first failure; gives 1. */
int rank_fail(rank_t* self, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 4, 5)));

int rank_expect_result(rank_t* self, const char* file, int line, const char* call, dsc_result_t expected,
                       dsc_result_t came);

/* Waits until all ranks have come here, without the library. Who then aborts, leaves or dies takes nothing
 * away from a rank that has not seen yet that the operation before is done. Gives 0, or fails. */
int ranks_meet(rank_t* self);

/* A number that all ranks see; 0 at first. The second waits until it is `wanted`; gives 0, or fails. */
void ranks_note(rank_t* self, int64_t number);
int ranks_await(rank_t* self, int64_t wanted);
int64_t ranks_noted(const rank_t* self);

int64_t now_ms(void);

/* Deterministic numbers: SplitMix64. */
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

/* Goes on with a body's own failure. */
#define PASS_ON(call)          \
  do {                         \
    if ((call) != 0) return 1; \
  } while (0)

#endif /* TESTS_SUPPORT_RANKS_H */
