/* Agreement, shrinking and revoking after a failure. The group `alone` needs no other rank. */
#include <stdint.h>

#include "capi_walk.h"

static void agree(void) {
  int32_t agreed = 99;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_agree(bad, 1, &agreed));
  WALK_INVALID(dsc_comm_agree(walk_world.alone, 1, NULL));
  EXPECT(agreed == 99);
  WALK(DSC_OK, dsc_comm_agree(walk_world.alone, INT32_MIN, &agreed));
  EXPECT(agreed == INT32_MIN);
}

static void shrink(void) {
  dsc_comm_t* shrunk = walk_world.world;
  dsc_comm_options_t options;
  WALK(DSC_OK, dsc_comm_options_init(&options, sizeof options));
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_shrink(bad, NULL, &shrunk));
  EXPECT(shrunk == NULL);
  WALK_INVALID(dsc_comm_shrink(walk_world.alone, NULL, NULL));
  options.timeout_ms = -1;
  WALK_INVALID(dsc_comm_shrink(walk_world.alone, &options, &shrunk));
  options.timeout_ms = 0;
  options.n_settings = 1;
  WALK_INVALID(dsc_comm_shrink(walk_world.alone, &options, &shrunk));
  options.n_settings = 0;
  options.struct_size = 8;
  WALK_INVALID(dsc_comm_shrink(walk_world.alone, &options, &shrunk));
  EXPECT(shrunk == NULL);
  WALK(DSC_OK, dsc_comm_shrink(walk_world.alone, NULL, &shrunk));
  int32_t size = 0;
  WALK(DSC_OK, dsc_comm_size(shrunk, &size));
  EXPECT(size == 1);
  WALK(DSC_OK, dsc_comm_destroy(shrunk));
}

static void missing(void) {
  int32_t rank = 99;
  size_t count = 99;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_comm_missing(bad, &rank, 1, &count));
  WALK_INVALID(dsc_comm_missing(walk_world.world, &rank, 1, NULL));
  WALK_INVALID(dsc_comm_missing(walk_world.world, NULL, 1, &count));
  EXPECT(count == 99);
  WALK(DSC_OK, dsc_comm_missing(walk_world.world, NULL, 0, &count));
  EXPECT(count == 0 && rank == 99);
}

const walk_step_t walk_recovery[] = {
    {"dsc_comm_agree", agree},
    {"dsc_comm_shrink", shrink},
    {"dsc_comm_missing", missing},
    {NULL, NULL},
};
