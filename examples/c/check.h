/* Helpers of the examples: every call into libdsc is checked, and a failure is explained. */
#ifndef EXAMPLES_CHECK_H
#define EXAMPLES_CHECK_H

#include <dsc/dsc.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the library's error message if a call fails. */
#define CHECK(call)                                                                                      \
  do {                                                                                                   \
    const dsc_result_t check_result = (call);                                                            \
    if (check_result != DSC_OK) {                                                                        \
      fprintf(stderr, "%s:%d: %s\n  %s: %s\n", __FILE__, __LINE__, #call, dsc_result_name(check_result), \
              dsc_last_error_message());                                                                 \
      exit(EXIT_FAILURE);                                                                                \
    }                                                                                                    \
  } while (0)

/* Ends the program if a result is wrong; works with NDEBUG too. */
#define EXPECT(condition)                                                      \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      exit(EXIT_FAILURE);                                                      \
    }                                                                          \
  } while (0)

#endif /* EXAMPLES_CHECK_H */
