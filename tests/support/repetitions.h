/*
 * How often tests repeat what they repeat: kills, rounds of a soak, random cases. DSC_TEST_REPETITIONS says
 * how many hundredths of the usual counts; 100 if it is not set. repetitions.py is the same for Python.
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

/* The usual count, scaled, but at least the one with which the test still says what it should. */
static inline int test_repetitions(int usual, int least) {
  const long long wanted = (long long)usual * test_repetitions_percent() / 100;
  return wanted > INT_MAX ? INT_MAX : wanted > least ? (int)wanted : least;
}

#endif /* TESTS_SUPPORT_REPETITIONS_H */
