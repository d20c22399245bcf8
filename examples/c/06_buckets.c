/*
 * Gradient buckets: the plan alone, and a reducer that averages gradients while they are being computed.
 *
 *   dscrun -n 4 -- ./06_buckets
 */
#include "check.h"

enum { PARAMS = 4, MOST = 100 };

static const size_t counts[PARAMS] = {100, 10, 50, 5};

/* Plans buckets and prints them as [0, 1] [2, 3]. */
static void show_plan(size_t limit_bytes) {
  const dsc_dtype_t dtypes[PARAMS] = {DSC_DTYPE_F32, DSC_DTYPE_F32, DSC_DTYPE_F32, DSC_DTYPE_F32};
  size_t indices[PARAMS];
  size_t starts[PARAMS + 1];
  size_t n_buckets = 0;
  dsc_bucket_plan_options_t options;
  CHECK(dsc_bucket_plan_options_init(&options, sizeof options));
  options.limits = &limit_bytes;
  options.n_limits = 1;
  CHECK(dsc_bucket_plan(counts, dtypes, PARAMS, &options, indices, starts, NULL, &n_buckets));
  printf("limit of %zu bytes:", limit_bytes);
  for (size_t bucket = 0; bucket < n_buckets; bucket++) {
    for (size_t i = starts[bucket]; i < starts[bucket + 1]; i++)
      printf("%s%zu", i == starts[bucket] ? " [" : ", ", indices[i]);
    printf("]");
  }
  printf("\n");
}

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  int32_t size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_size(world, &size));
  if (rank == 0) show_plan(1 << 20);
  if (rank == 0) show_plan(200);

  static float values[PARAMS][MOST];
  static float grads[PARAMS][MOST];
  dsc_tensor_t params[PARAMS];
  for (size_t i = 0; i < PARAMS; i++) params[i] = dsc_tensor_on_host(values[i], counts[i], DSC_DTYPE_F32);
  dsc_bucket_reducer_options_t options;
  CHECK(dsc_bucket_reducer_options_init(&options, sizeof options));
  options.first_bucket_bytes = options.bucket_bytes = 200;
  dsc_bucket_reducer_t* reducer = NULL;
  CHECK(dsc_bucket_reducer_create(world, params, PARAMS, &options, &reducer));

  CHECK(dsc_bucket_reducer_begin(reducer, NULL));
  for (size_t i = PARAMS; i-- > 0;) { /* backward: the last parameter's gradient is computed first */
    for (size_t k = 0; k < counts[i]; k++) grads[i][k] = (float)(rank + 1) * (float)(i + 1);
    /* The reduction of a full bucket starts automatically. */
    CHECK(dsc_bucket_reducer_mark_ready(reducer, i, grads[i], NULL));
  }
  CHECK(dsc_bucket_reducer_finish(reducer, NULL)); /* now grads hold the mean over all ranks */

  for (size_t i = 0; i < PARAMS; i++) EXPECT(grads[i][0] == grads[i][counts[i] - 1]);
  printf("rank %d: mean gradients %g %g %g %g\n", rank, grads[0][0], grads[1][0], grads[2][0], grads[3][0]);

  CHECK(dsc_bucket_reducer_destroy(reducer));
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
