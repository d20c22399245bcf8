/*
 * Ranks with different numbers of batches: a join, micro-batches without communication, a hook, and a limited
 * norm.
 *
 *   dscrun -n 4 -- ./16_uneven
 */
#include "check.h"

enum { COUNT = 1000 };

static float weights[COUNT];
static float gradient[COUNT];

/* Runs one iteration, with the same number in every element of the gradient. */
static void iterate(dsc_bucket_reducer_t* reducer, float value) {
  for (size_t i = 0; i < COUNT; i++) gradient[i] = value;
  CHECK(dsc_bucket_reducer_begin(reducer, NULL));
  CHECK(dsc_bucket_reducer_mark_ready(reducer, 0, gradient, NULL));
  CHECK(dsc_bucket_reducer_finish(reducer, NULL));
}

/* Runs one training step. Returns the norm of the mean gradient. */
static double step(dsc_bucket_reducer_t* reducer) {
  CHECK(dsc_bucket_reducer_set_sync(reducer, 0));
  iterate(reducer, 1); /* the first micro-batch is not communicated */
  CHECK(dsc_bucket_reducer_set_sync(reducer, 1));
  iterate(reducer, 3); /* the mean of the sums over all ranks, some of which may have no batch */
  dsc_clip_options_t options;
  CHECK(dsc_clip_options_init(&options, sizeof options));
  options.max_norm = 1;
  double norm = 0;
  CHECK(dsc_bucket_reducer_clip(reducer, &options, &norm));
  for (size_t i = 0; i < COUNT; i++) weights[i] -= gradient[i];
  return norm;
}

int main(void) {
  dsc_comm_t* world = NULL;
  int32_t rank = -1;
  int32_t last = -1;
  CHECK(dsc_init_distributed(NULL, &world));
  CHECK(dsc_comm_rank(world, &rank));
  dsc_tensor_t param = dsc_tensor_on_host(weights, COUNT, DSC_DTYPE_F32);
  param.name = "weights";
  dsc_bucket_reducer_t* reducer = NULL;
  dsc_join_t* join = NULL;
  CHECK(dsc_bucket_reducer_create(world, &param, 1, NULL, &reducer));
  CHECK(dsc_bucket_reducer_use_hook(reducer, "bf16"));
  CHECK(dsc_join_create(world, &reducer, 1, NULL, &join));

  const int batches = rank + 1; /* rank 0 is the first to have no more batches */
  double norm = 0;
  for (int batch = 0; batch < batches; batch++) norm = step(reducer);
  /* Takes part in the reductions of the other ranks until all ranks have finished. */
  CHECK(dsc_join_finish(join, &param, 1, &last));

  printf("rank %d: %d batches, the last one with a norm of %.1f; rank %d came last, weights %.4f\n", rank,
         batches, norm, last, weights[0]);
  CHECK(dsc_join_destroy(join));
  CHECK(dsc_bucket_reducer_destroy(reducer));
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
