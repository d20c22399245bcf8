/*
 * How often tests repeat things such as kills, rounds of a soak test, and random cases. DSC_TEST_REPETITIONS
 * is a percentage of the usual counts; the default is 100. repetitions.py does the same for Python.
 */
#ifndef TESTS_SUPPORT_REPETITIONS_H
#define TESTS_SUPPORT_REPETITIONS_H

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static inline long test_repetitions_percent(void) {
  const char* text = getenv("DSC_TEST_REPETITIONS");
  if (text == NULL || *text == '\0') return 100;
  char* end = NULL;
  const long percent = strtol(text, &end, 10);
  if (*end == '\0' && percent >= 1 && percent <= 1000000) return percent;
  fprintf(stderr, "DSC_TEST_REPETITIONS is '%s', expected hundredths from 1 to 1000000\n", text);
  exit(2);
}

/* Scales the usual count, but returns at least the smallest count with which the test makes sense. */
static inline int test_repetitions(int usual, int least) {
  const long long wanted = (long long)usual * test_repetitions_percent() / 100;
  return wanted > INT_MAX ? INT_MAX : wanted > least ? (int)wanted : least;
}

#endif /* TESTS_SUPPORT_REPETITIONS_H */
