/* What a process holds: to see that nothing stays behind. */
#ifndef TESTS_SUPPORT_CENSUS_H
#define TESTS_SUPPORT_CENSUS_H

typedef struct census {
  int descriptors;
  int threads;
  int maps; /* of shared memory */
} census_t;

census_t take_census(void);

#endif /* TESTS_SUPPORT_CENSUS_H */
