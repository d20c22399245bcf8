/*
 * Expert parallelism: a layer with six experts, which the ranks divide. A router has chosen two weighted
 * experts for each token. Each token is sent to the ranks of its experts, which compute, and returns as a
 * weighted sum. The gradients take the same paths.
 *
 *   dscrun -n 4 -- ./18_expert_parallel
 */
#include "check.h"

enum { TOKENS = 8, WIDTH = 4, EXPERTS = 6, TOP_K = 2, SLOTS = TOKENS * TOP_K };

static double tokens[TOKENS * WIDTH];
static int32_t experts[SLOTS];
static double weights[SLOTS];

/* An expert multiplies by one number, which is its parameter. */
static double parameter_of(size_t expert) { return (double)expert - 2; }

/* Fills in small whole numbers and quarters, whose products and sums are exact in any order. */
static void fill(size_t rank) {
  for (size_t t = 0; t < TOKENS; t++) {
    const size_t number = rank * TOKENS + t;
    for (size_t c = 0; c < WIDTH; c++) tokens[t * WIDTH + c] = (double)((2 * number + 3 * c) % 7) - 3;
    for (size_t k = 0; k < TOP_K; k++) {
      experts[t * TOP_K + k] = (int32_t)((number * number + 2 * k) % EXPERTS);
      weights[t * TOP_K + k] = k == 0 ? 0.75 : 0.25;
    }
  }
}

/* Multiplies the rows of this rank's experts by their parameters. */
static void apply_experts(const dsc_moe_plan_t* plan, const double* from, double* to) {
  size_t rows[EXPERTS];
  size_t count = 0;
  dsc_moe_plan_info_t info = {.struct_size = sizeof info};
  CHECK(dsc_moe_plan_info(plan, &info));
  CHECK(dsc_moe_plan_expert_rows(plan, rows, EXPERTS, &count));
  for (size_t e = 0, at = 0; e < count; e++)
    for (const size_t end = at + rows[e] * WIDTH; at < end; at++)
      to[at] = from[at] * parameter_of(info.first_expert + e);
}

static double product(const double* a, const double* b, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

/* Computes the expected result for this rank's tokens: each output is a multiple of its token, and so is
 * its gradient for the loss sum(out * out) / 2. */
static void compare(const double* out, const double* token_gradients, const double* weight_gradients) {
  for (size_t t = 0; t < TOKENS; t++) {
    const double* token = tokens + t * WIDTH;
    double factor = 0;
    for (size_t slot = t * TOP_K; slot < (t + 1) * TOP_K; slot++)
      factor += weights[slot] * parameter_of((size_t)experts[slot]);
    for (size_t c = 0; c < WIDTH; c++) {
      EXPECT(out[t * WIDTH + c] == factor * token[c]);
      EXPECT(token_gradients[t * WIDTH + c] == factor * factor * token[c]);
    }
    for (size_t slot = t * TOP_K; slot < (t + 1) * TOP_K; slot++)
      EXPECT(weight_gradients[slot] ==
             factor * parameter_of((size_t)experts[slot]) * product(token, token, WIDTH));
  }
}

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  CHECK(dsc_comm_rank(world, &rank));
  fill((size_t)rank);

  dsc_moe_plan_options_t options;
  CHECK(dsc_moe_plan_options_init(&options, sizeof options));
  options.experts = EXPERTS;
  options.top_k = TOP_K;
  dsc_moe_plan_t* plan = NULL;
  CHECK(dsc_moe_plan_create(world, &options, experts, TOKENS, NULL, &plan));
  dsc_moe_plan_info_t info = {.struct_size = sizeof info};
  CHECK(dsc_moe_plan_info(plan, &info));

  /* Forward. */
  const size_t elements = info.rows * WIDTH;
  double* rows = calloc(elements + 1, sizeof *rows);
  double* results = calloc(elements + 1, sizeof *results);
  double out[TOKENS * WIDTH];
  double returned[SLOTS * WIDTH]; /* kept for the gradients of the weights */
  CHECK(dsc_moe_dispatch(plan, tokens, WIDTH, DSC_DTYPE_F64, DSC_MOE_PAYLOAD_PLAIN, rows, NULL, NULL));
  apply_experts(plan, rows, results);
  CHECK(dsc_moe_combine(plan, results, weights, WIDTH, DSC_DTYPE_F64, out, returned, NULL, NULL));

  /* Backward: the gradient of the loss is out. */
  double* gradients = calloc(elements + 1, sizeof *gradients);
  double token_gradients[TOKENS * WIDTH];
  double weight_gradients[SLOTS];
  dsc_work_t* work = NULL;
  CHECK(dsc_moe_combine_backward(plan, out, weights, returned, WIDTH, DSC_DTYPE_F64, gradients,
                                 weight_gradients, NULL, NULL));
  apply_experts(plan, gradients, results);
  CHECK(dsc_moe_dispatch_backward(plan, results, WIDTH, DSC_DTYPE_F64, token_gradients, NULL, &work));
  /* Computed while the gradients are sent. */
  double sums[2] = {product(rows, gradients, elements), product(out, out, TOKENS * WIDTH) / 2};
  CHECK(dsc_work_wait(work, -1, NULL));
  CHECK(dsc_work_destroy(work));
  compare(out, token_gradients, weight_gradients);

  CHECK(dsc_all_reduce(world, sums, sums, 2, DSC_DTYPE_F64, DSC_OP_SUM, NULL, NULL));
  printf(
      "rank %d: %zu rows for %zu experts from %zu on; loss %.1f, gradients of the parameters sum to %.0f\n",
      rank, info.rows, info.local_experts, info.first_expert, sums[1], sums[0]);

  free(rows);
  free(results);
  free(gradients);
  CHECK(dsc_moe_plan_destroy(plan));
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
