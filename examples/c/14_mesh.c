/*
 * A mesh: named axes instead of colors and keys. Pairs of ranks share a layer (tp), and such pairs form a
 * pipeline (pp). The last stage broadcasts a value that only it knows.
 *
 *   dscrun -n 4 -- ./14_mesh
 */
#include "check.h"

enum { AXES = 2 };

/* Writes the ranks of this rank's group along some axes, such as "[0, 2]". */
static void write_group(dsc_mesh_t* mesh, int32_t rank, const char* axes, char* text, size_t bytes) {
  int32_t ranks[64];
  size_t n = 0;
  CHECK(dsc_mesh_group(mesh, rank, axes, ranks, 64, &n, NULL, NULL));
  size_t used = 0;
  for (size_t i = 0; i < n && used < bytes; i++)
    used += (size_t)snprintf(text + used, bytes - used, "%s%d%s", i == 0 ? "[" : "", ranks[i],
                             i + 1 < n ? ", " : "]");
}

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  int32_t size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_size(world, &size));

  /* The first axis of the order varies fastest: neighbors along it have consecutive ranks. -1 stands for
   * the rest of the world. */
  static const char* const names[AXES] = {"tp", "pp"};
  const int32_t sizes[AXES] = {size % 2 == 0 ? 2 : 1, -1};
  dsc_mesh_options_t options;
  CHECK(dsc_mesh_options_init(&options, sizeof options));
  options.order = "tp-pp";
  options.world_size = size;
  dsc_mesh_t* mesh = NULL;
  CHECK(dsc_mesh_create(names, sizes, AXES, &options, &mesh));

  char name[64];
  char layer[64];
  char pipe[64];
  size_t bytes = 0;
  CHECK(dsc_mesh_rank_name(mesh, rank, NULL, NULL, NULL, name, sizeof name, &bytes));
  write_group(mesh, rank, "tp", layer, sizeof layer);
  write_group(mesh, rank, "pp", pipe, sizeof pipe);
  printf("rank %d is %s: layer of %s, pipeline of %s\n", rank, name, layer, pipe);

  /* All ranks make the communicators of an axis together; each rank gets its own. */
  dsc_comm_t* pipeline = NULL;
  CHECK(dsc_mesh_comm(mesh, world, "pp", NULL, &pipeline));
  int32_t stages = 0;
  CHECK(dsc_comm_size(pipeline, &stages));
  double loss = rank;
  CHECK(dsc_broadcast(pipeline, &loss, &loss, 1, DSC_DTYPE_F64, stages - 1, NULL, NULL));
  int32_t last = -1;
  CHECK(dsc_mesh_peer(mesh, rank, "pp", -1, &last));
  EXPECT(loss == last);
  printf("rank %d: the loss is %g\n", rank, loss);

  CHECK(dsc_comm_destroy(pipeline));
  CHECK(dsc_mesh_destroy(mesh));
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
