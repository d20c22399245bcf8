#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>

static int succeeds(const struct ranks* ranks, dsc_result_t result) {
  if (result == DSC_OK) return 1;
  fprintf(stderr, "ranks: %s: %s\n", ranks->dsc.result_name(result), ranks->dsc.last_error_message());
  return 0;
}

/* Without libdsc, a single process can work. But if a launcher has started several processes and each of them
 * worked alone, all results would be wrong. */
static int work_alone(const char* reason) {
  const char* const size = getenv("WORLD_SIZE");
  if (size && atoi(size) > 1) {
    fprintf(stderr, "ranks: WORLD_SIZE is %s, but libdsc cannot be used: %s\n", size, reason);
    return 0;
  }
  printf("ranks: a single process, because libdsc cannot be used: %s\n", reason);
  return 1;
}

/* The program or another framework may have created the world, and will finalize it then. A group of its own
 * keeps the framework's operations apart from theirs: in order, and on threads. */
static int join_world(struct ranks* ranks) {
  const struct libdsc* const dsc = &ranks->dsc;
  int32_t exists = 0;
  dsc_comm_t* world = NULL;
  if (!succeeds(ranks, dsc->is_initialized(&exists))) return 0;
  if (!succeeds(ranks, dsc->init_distributed(NULL, &world))) return 0;
  ranks->owns_world = !exists;
  return succeeds(ranks, dsc->comm_split(world, 0, 0, NULL, &ranks->group)) &&
         succeeds(ranks, dsc->comm_rank(ranks->group, &ranks->rank)) &&
         succeeds(ranks, dsc->comm_size(ranks->group, &ranks->size));
}

int ranks_join(struct ranks* ranks) {
  char reason[512];
  *ranks = (struct ranks){.size = 1};
  return libdsc_load(&ranks->dsc, reason, sizeof reason) ? join_world(ranks) : work_alone(reason);
}

/* The average over one process is the value of that process. */
int ranks_average(const struct ranks* ranks, double* value) {
  if (!ranks->group) return 1;
  return succeeds(
      ranks, ranks->dsc.all_reduce(ranks->group, value, value, 1, DSC_DTYPE_F64, DSC_OP_AVG, NULL, NULL));
}

int ranks_leave(struct ranks* ranks) {
  if (!ranks->group) return 1;
  const struct libdsc* const dsc = &ranks->dsc;
  const int finalized = succeeds(ranks, dsc->comm_finalize(ranks->group));
  const int destroyed = succeeds(ranks, dsc->comm_destroy(ranks->group));
  return (!ranks->owns_world || succeeds(ranks, dsc->finalize())) && finalized && destroyed;
}
