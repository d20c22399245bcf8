/* The communication of a framework that works with libdsc and without it. */
#ifndef RANKS_H
#define RANKS_H

#include "optional_libdsc.h"

struct ranks {
  struct libdsc dsc;
  dsc_comm_t* group; /* the framework's own communicator of all ranks; NULL without libdsc */
  int32_t rank, size;
  int32_t owns_world; /* 1 if this framework created the world, so that it must finalize it */
};

/* All functions return 1, or 0 after they have printed what failed. */
int ranks_join(struct ranks* ranks);
int ranks_average(const struct ranks* ranks, double* value);
int ranks_leave(struct ranks* ranks);

#endif /* RANKS_H */
