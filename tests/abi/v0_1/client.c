/* A program of release 0.1: compiled with that release's headers, run against the library of today. */
#include <dsc/dsc.h>
#include <stdio.h>
#include <string.h>

#define COUNT 1000

#define REQUIRE(condition)                                                             \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition, \
              dsc_last_error_message());                                               \
      return 1;                                                                        \
    }                                                                                  \
  } while (0)

static int queries(dsc_comm_t* world) {
  int32_t rank = -1, size = -1, local_size = -1, backend = -1, global = -1;
  char name[32] = "";
  size_t bytes = 0;
  REQUIRE(dsc_comm_rank(world, &rank) == DSC_OK && rank == 0);
  REQUIRE(dsc_comm_size(world, &size) == DSC_OK && size == 1);
  REQUIRE(dsc_comm_local_size(world, &local_size) == DSC_OK && local_size == 1);
  REQUIRE(dsc_comm_backend(world, &backend) == DSC_OK && backend == DSC_BACKEND_HOST);
  REQUIRE(dsc_comm_global_rank(world, 0, &global) == DSC_OK && global == 0);
  REQUIRE(dsc_comm_name(world, name, sizeof name, &bytes) == DSC_OK && strcmp(name, "world") == 0);

  dsc_error_info_t info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  REQUIRE(dsc_comm_error_info(world, &info) == DSC_OK && info.code == DSC_OK && info.revoked == 0);
  return 0;
}

static int collectives(dsc_comm_t* world) {
  static float send[COUNT], recv[COUNT];
  for (int i = 0; i < COUNT; i++) send[i] = (float)i;
  REQUIRE(dsc_all_reduce(world, send, recv, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL) == DSC_OK);
  REQUIRE(memcmp(send, recv, sizeof send) == 0);

  dsc_work_t* work = NULL;
  REQUIRE(dsc_broadcast(world, send, send, COUNT, DSC_DTYPE_F32, 0, NULL, &work) == DSC_OK);
  REQUIRE(dsc_work_synchronize(work, 10000) == DSC_OK);
  REQUIRE(dsc_work_destroy(work) == DSC_OK);
  REQUIRE(dsc_barrier(world, NULL, NULL) == DSC_OK);
  REQUIRE(dsc_all_reduce(world, send, recv, COUNT, 0, DSC_OP_SUM, NULL, NULL) == DSC_ERR_INVALID_ARG);
  return 0;
}

int main(void) {
  dsc_init_options_t options;
  dsc_comm_t* world = NULL;
  REQUIRE(dsc_init_options_init(&options, sizeof options) == DSC_OK);
  options.rank = 0;
  options.world_size = 1;
  REQUIRE(dsc_init_distributed(&options, &world) == DSC_OK);
  if (queries(world) || collectives(world)) return 1;
  REQUIRE(dsc_finalize() == DSC_OK);
  return 0;
}
