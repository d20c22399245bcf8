/*
 * Sharded training: every rank keeps one part of the optimizer's state, of the gradients and of the
 * parameters. A layer is whole only while it computes.
 *
 *   dscrun -n 4 -- ./15_sharding [STAGE]
 */
#include <math.h>
#include <string.h>

#include "check.h"

enum { PARAMS = 4, MOST = 100, STEPS = 3 };

static const size_t counts[PARAMS] = {100, 10, 50, 5};
static const size_t layers[] = {0, 2}; /* the first parameter of each layer */
enum { LAYERS = sizeof layers / sizeof *layers };

static dsc_sharded_t* make(dsc_comm_t* world, int32_t stage) {
  static float values[PARAMS][MOST];
  static const char* const names[PARAMS] = {"w0", "b0", "w1", "b1"};
  dsc_tensor_t params[PARAMS];
  for (size_t i = 0; i < PARAMS; i++) {
    for (size_t k = 0; k < counts[i]; k++) values[i][k] = 1;
    params[i] = dsc_tensor_on_host(values[i], counts[i], DSC_DTYPE_F32);
    params[i].name = names[i];
  }
  dsc_shard_plan_options_t plan;
  CHECK(dsc_shard_plan_options_init(&plan, sizeof plan));
  plan.unit_starts = layers;
  plan.n_units = LAYERS;
  dsc_sharded_options_t options;
  CHECK(dsc_sharded_options_init(&options, sizeof options));
  options.plan = &plan;
  options.stage = stage;
  dsc_sharded_t* sharded = NULL;
  CHECK(dsc_sharded_create(world, params, PARAMS, &options, &sharded));
  return sharded;
}

/* Makes a layer's parameters available, computes with them, and releases them. */
static void use_layer(dsc_sharded_t* sharded, size_t layer, float first_of[PARAMS]) {
  CHECK(dsc_sharded_unshard(sharded, layer));
  CHECK(dsc_sharded_wait(sharded, layer, NULL));
  for (size_t i = layers[layer]; i < layers[layer] + 2; i++) {
    void* view = NULL;
    CHECK(dsc_sharded_param_view(sharded, i, &view));
    first_of[i] = ((const float*)view)[0];
  }
  CHECK(dsc_sharded_reshard(sharded, layer, NULL));
}

/* The optimizer updates only this rank's shards. */
static void step(const dsc_sharded_shard_t* shard, float* momentum) {
  float* params = shard->params;
  const float* grads = shard->grads;
  for (size_t i = 0; i < shard->count; i++) {
    momentum[i] = 0.9F * momentum[i] + grads[i];
    params[i] -= 0.1F * momentum[i];
  }
}

int main(int argc, char** argv) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  CHECK(dsc_comm_rank(world, &rank));
  dsc_sharded_t* sharded = make(world, argc > 1 ? atoi(argv[1]) : 3);

  dsc_sharded_shard_t shards[PARAMS] = {{.struct_size = sizeof *shards}};
  size_t n_shards = 0;
  CHECK(dsc_sharded_shards(sharded, shards, PARAMS, &n_shards));
  float* momentum[PARAMS];
  for (size_t b = 0; b < n_shards; b++) {
    momentum[b] = calloc(shards[b].count, sizeof(float));
    EXPECT(momentum[b] != NULL);
  }

  float first_of[PARAMS];
  double norm = 0;
  dsc_clip_options_t limit;
  CHECK(dsc_clip_options_init(&limit, sizeof limit));
  limit.max_norm = 1000;
  for (int number = 0; number < STEPS; number++) {
    for (size_t layer = 0; layer < LAYERS; layer++) use_layer(sharded, layer, first_of); /* forward */
    CHECK(dsc_sharded_begin(sharded, 0, NULL));
    for (size_t layer = LAYERS; layer-- > 0;) { /* backward: the last layer's gradients are computed first */
      use_layer(sharded, layer, first_of);
      for (size_t i = layers[layer] + 2; i-- > layers[layer];) {
        float gradient[MOST];
        for (size_t k = 0; k < counts[i]; k++) gradient[k] = (float)(rank + 1) * (float)(i + 1);
        CHECK(dsc_sharded_mark_ready(sharded, i, gradient, DSC_DTYPE_F32, NULL));
      }
    }
    CHECK(dsc_sharded_finish(sharded, NULL)); /* now this rank's shards hold the mean */
    CHECK(dsc_sharded_clip(sharded, &limit, &norm, NULL));
    for (size_t b = 0; b < n_shards; b++) step(&shards[b], momentum[b]);
    CHECK(dsc_sharded_step_done(sharded, 1, NULL));
  }
  for (size_t layer = 0; layer < LAYERS; layer++) use_layer(sharded, layer, first_of);
  printf("rank %d: parameters %.4f %.4f %.4f %.4f\n", rank, (double)first_of[0], (double)first_of[1],
         (double)first_of[2], (double)first_of[3]);
  if (rank == 0) printf("norm of all gradients %.2f\n", norm);

  for (size_t b = 0; b < n_shards; b++) free(momentum[b]);
  CHECK(dsc_sharded_destroy(sharded));
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
