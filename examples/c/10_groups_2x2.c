/*
 * Two groups per rank: its pipeline, and the ranks with the same stage in all replicas.
 *
 *                stage 0   stage 1
 *   replica 0    rank 0    rank 1      a row passes on activations
 *   replica 1    rank 2    rank 3      a column averages gradients
 *
 *   dscrun -n 4 -- ./10_groups_2x2
 */
#include "check.h"

enum { STAGES = 2 };

/* Makes a group of the ranks of one color, ordered by key. Errors contain the name. */
static dsc_comm_t* split(dsc_comm_t* world, int32_t color, int32_t key, const char* name) {
  dsc_comm_options_t options;
  CHECK(dsc_comm_options_init(&options, sizeof options));
  options.name = name;
  dsc_comm_t* group = NULL;
  CHECK(dsc_comm_split(world, color, key, &options, &group));
  return group;
}

/* Writes the ranks of a group as ranks of the world, such as "[0, 2]". */
static void write_members(dsc_comm_t* group, char* text, size_t bytes) {
  int32_t size = 0;
  CHECK(dsc_comm_size(group, &size));
  size_t used = 0;
  for (int32_t i = 0; i < size && used < bytes; i++) {
    int32_t rank = -1;
    CHECK(dsc_comm_global_rank(group, i, &rank));
    used += (size_t)snprintf(text + used, bytes - used, "%s%d%s", i == 0 ? "[" : "", rank,
                             i + 1 < size ? ", " : "]");
  }
}

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  int32_t size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_size(world, &size));
  if (size % STAGES != 0) {
    fprintf(stderr, "an even number of ranks, please: dscrun -n 4 -- ./10_groups_2x2\n");
    return EXIT_FAILURE;
  }
  const int32_t replica = rank / STAGES;
  const int32_t stage = rank % STAGES;

  dsc_comm_t* pipeline = split(world, replica, stage, "pipeline");
  dsc_comm_t* replicas = split(world, stage, replica, "replicas");
  char row[64];
  char column[64];
  write_members(pipeline, row, sizeof row);
  write_members(replicas, column, sizeof column);
  printf("rank %d: stage %d of pipeline %s, replica %d of %s\n", rank, stage, row, replica, column);

  /* Along the row: every stage except the first receives from the stage before, and adds 10. */
  double x = replica + 1.0;
  if (stage > 0) {
    CHECK(dsc_recv(pipeline, &x, 1, DSC_DTYPE_F64, stage - 1, NULL, NULL));
    x += 10;
  }
  if (stage < STAGES - 1) CHECK(dsc_send(pipeline, &x, 1, DSC_DTYPE_F64, stage + 1, NULL, NULL));

  /* Along the column: the mean over the replicas. */
  CHECK(dsc_all_reduce(replicas, &x, &x, 1, DSC_DTYPE_F64, DSC_OP_AVG, NULL, NULL));
  const int32_t n_replicas = size / STAGES;
  EXPECT(x == 10.0 * stage + (n_replicas + 1) / 2.0);
  printf("rank %d: average over the replicas of stage %d is %g\n", rank, stage, x);

  CHECK(dsc_comm_destroy(pipeline));
  CHECK(dsc_comm_destroy(replicas));
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
