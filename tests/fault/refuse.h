/*
 * Simulates a system that refuses calls. This library is between the program and the C library. It lets the
 * n-th call of one kind fail as the system would. Link it before the C library, or preload it with DSC_REFUSE
 * set to one of: interrupt (half of all calls that wait or move data first fail with EINTR), again (they fail
 * with EAGAIN), short (files are read and written byte by byte), clock (the time of day jumps by an hour).
 */
#ifndef TESTS_FAULT_REFUSE_H
#define TESTS_FAULT_REFUSE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the name of a kind of calls; kinds are numbered from 0. NULL if there is no such kind. Call it once
 * before the first refuse_calls(). */
const char* refuse_name(int kind);

/* From now on counts the calls of all threads, and refuses those of one kind from number `first` to `last`.
 * The next call is number 1. */
void refuse_calls(int kind, int64_t first, int64_t last);

/* Stops refusing and counting. */
void refuse_no_more(void);

/* Returns how many calls of one kind were made since refuse_calls(), including refused ones. */
int64_t refuse_count(int kind);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_FAULT_REFUSE_H */
