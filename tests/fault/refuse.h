/*
 * A system that refuses: this library stands between the program and the C library, and lets the n-th call of
 * one kind fail as the system would. Link it before the C library, or preload it with DSC_REFUSE=interrupt
 * (half of all calls that wait or move data end with EINTR first), again (EAGAIN instead), short (files are
 * read and written byte by byte) or clock (the time of day jumps by hours).
 */
#ifndef TESTS_FAULT_REFUSE_H
#define TESTS_FAULT_REFUSE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of calls, by number from 0; NULL: there is none. Call it once before the first refuse_calls(). */
const char* refuse_name(int kind);

/* From now on counts the calls of all threads, and refuses those of one kind from `first` to `last`; 1 is the
 * next one. */
void refuse_calls(int kind, int64_t first, int64_t last);

/* Refuses and counts nothing any more. */
void refuse_no_more(void);

/* Calls of one kind since refuse_calls(), refused ones included. */
int64_t refuse_count(int kind);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_FAULT_REFUSE_H */
