/* The resources that a process holds, to check that nothing is left behind. */
#ifndef TESTS_SUPPORT_CENSUS_H
#define TESTS_SUPPORT_CENSUS_H

typedef struct census {
  int descriptors;
  int threads;
  int maps;     /* mappings of shared memory */
  int segments; /* those of them that belong to dsc_mem_alloc() and dsc_mem_register() */
} census_t;

census_t take_census(void);

#endif /* TESTS_SUPPORT_CENSUS_H */
