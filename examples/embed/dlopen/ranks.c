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

/* The program or another framework may have created the world already. Then its options hold, and the one
 * that created it will finalize it. */
static int join_world(struct ranks* ranks) {
  const struct libdsc* const dsc = &ranks->dsc;
  dsc_init_options_t options;
  int32_t exists = 0;
  if (!succeeds(ranks, dsc->is_initialized(&exists))) return 0;
  if (!succeeds(ranks, dsc->init_options_init(&options, sizeof options))) return 0;
  options.timeout_ms = 60000;
  ranks->owns_world = !exists;
  return succeeds(ranks, dsc->init_distributed(exists ? NULL : &options, &ranks->world));
}

int ranks_join(struct ranks* ranks) {
  char reason[512];
  *ranks = (struct ranks){.size = 1};
  if (!libdsc_load(&ranks->dsc, reason, sizeof reason)) return work_alone(reason);
  return join_world(ranks) && succeeds(ranks, ranks->dsc.comm_rank(ranks->world, &ranks->rank)) &&
         succeeds(ranks, ranks->dsc.comm_size(ranks->world, &ranks->size));
}

/* The average over one process is the value of that process. */
int ranks_average(const struct ranks* ranks, double* value) {
  if (!ranks->world) return 1;
  return succeeds(
      ranks, ranks->dsc.all_reduce(ranks->world, value, value, 1, DSC_DTYPE_F64, DSC_OP_AVG, NULL, NULL));
}

int ranks_leave(struct ranks* ranks) { return !ranks->owns_world || succeeds(ranks, ranks->dsc.finalize()); }
