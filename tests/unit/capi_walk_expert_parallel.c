/* The exchange of tokens for mixture-of-experts layers, in a group of one rank. */
#include <math.h>
#include <stdint.h>

#include "capi_walk.h"

enum { TOKENS = 2, TOP_K = 2, SLOTS = TOKENS * TOP_K, HIDDEN = 4, ROWS = 3, F32 = DSC_DTYPE_F32 };

static const int32_t experts[SLOTS] = {0, 1, -1, 0};
static float tokens[TOKENS * HIDDEN] = {1, 2, 3, 4, 5, 6, 7, 8}, out[TOKENS * HIDDEN];
static float rows[ROWS * HIDDEN], row_gradients[ROWS * HIDDEN], returned[SLOTS * HIDDEN];
static float weights[SLOTS] = {0.5f, 0.25f, 7, 2}, weight_gradients[SLOTS];

#define MISALIGNED(array) ((void*)((uintptr_t)(array) + 1))

static void options_init(void) {
  dsc_moe_plan_options_t options;
  memset(&options, 0x77, sizeof options);
  WALK_INVALID(dsc_moe_plan_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_moe_plan_options_init(&options, sizeof options - 1));
  EXPECT(options.top_k == 0x7777777777777777);
  WALK(DSC_OK, dsc_moe_plan_options_init(&options, sizeof options));
  EXPECT(options.experts == 0 && options.top_k == 1 && options.capacity == 0 && options.padded == 0);
  EXPECT(options.drop == DSC_MOE_DROP_LATEST);
}

static dsc_moe_plan_options_t right_options(void) {
  dsc_moe_plan_options_t options;
  WALK(DSC_OK, dsc_moe_plan_options_init(&options, sizeof options));
  options.experts = 2;
  options.top_k = TOP_K;
  return options;
}

static void create_with(dsc_result_t expected, const dsc_moe_plan_options_t* options) {
  dsc_moe_plan_t* plan = (dsc_moe_plan_t*)walk_world.world;
  WALK(expected, dsc_moe_plan_create(walk_world.alone, options, experts, TOKENS, weights, &plan));
  EXPECT(plan == NULL);
}

/* Leaves one valid plan and one destroyed plan for the steps that follow. */
static void plan_create(void) {
  const dsc_moe_plan_options_t right = right_options();
  dsc_moe_plan_options_t wrong[9];
  for (int i = 0; i < 9; ++i) wrong[i] = right;
  wrong[0].struct_size = 8;
  wrong[1].experts = 0;
  wrong[2].experts = (size_t)1 << 31;
  wrong[3].top_k = 0;
  wrong[4].top_k = 65;
  wrong[5].drop = 0;
  wrong[6].drop = 3;
  wrong[7].padded = 2;
  wrong[8].padded = 1;
  for (int i = 0; i < 9; ++i) create_with(DSC_ERR_INVALID_ARG, &wrong[i]);
  create_with(DSC_ERR_INVALID_ARG, NULL);
  wrong[8].capacity = SIZE_MAX / 4;
  create_with(DSC_ERR_OVERFLOW, &wrong[8]);

  dsc_moe_plan_t* plan = NULL;
  const float unknown[SLOTS] = {1, NAN, 1, 1};
  dsc_moe_plan_options_t lightest = right;
  lightest.drop = DSC_MOE_DROP_LIGHTEST;
  lightest.capacity = 1;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_moe_plan_create(bad, &right, experts, TOKENS, NULL, &plan));
  WALK_INVALID(dsc_moe_plan_create(walk_world.alone, &right, experts, TOKENS, NULL, NULL));
  WALK_INVALID(dsc_moe_plan_create(walk_world.alone, &right, NULL, TOKENS, NULL, &plan));
  WALK_INVALID(dsc_moe_plan_create(walk_world.alone, &right, MISALIGNED(experts), 1, NULL, &plan));
  WALK_INVALID(dsc_moe_plan_create(walk_world.alone, &lightest, experts, TOKENS, NULL, &plan));
  WALK_INVALID(dsc_moe_plan_create(walk_world.alone, &lightest, experts, TOKENS, unknown, &plan));
  WALK_INVALID(dsc_moe_plan_create(walk_world.alone, &lightest, experts, 1, MISALIGNED(weights), &plan));
  WALK(DSC_ERR_OVERFLOW, dsc_moe_plan_create(walk_world.alone, &right, experts, SIZE_MAX / 4, NULL, &plan));
  WALK(DSC_OK, dsc_batch_begin(walk_world.alone));
  WALK(DSC_ERR_STATE, dsc_moe_plan_create(walk_world.alone, &right, experts, TOKENS, NULL, &plan));
  WALK(DSC_OK, dsc_batch_end(walk_world.alone, NULL, NULL));
  EXPECT(plan == NULL);

  WALK(DSC_OK, dsc_moe_plan_create(walk_world.alone, &lightest, experts, TOKENS, weights,
                                   &walk_world.stale_moe_plan));
  WALK(DSC_OK, dsc_moe_plan_destroy(walk_world.stale_moe_plan));
  WALK(DSC_OK, dsc_moe_plan_create(walk_world.alone, &right, experts, TOKENS, NULL, &walk_world.moe_plan));
}

static void plan_info(void) {
  dsc_moe_plan_info_t info = {.struct_size = sizeof info};
  WALK_BAD_HANDLES(WALK_MOE_PLAN, dsc_moe_plan_t, dsc_moe_plan_info(bad, &info));
  WALK_INVALID(dsc_moe_plan_info(walk_world.moe_plan, NULL));
  info.struct_size = 8;
  WALK_INVALID(dsc_moe_plan_info(walk_world.moe_plan, &info));
  EXPECT(info.tokens == 0);
  info.struct_size = sizeof info;
  WALK(DSC_OK, dsc_moe_plan_info(walk_world.moe_plan, &info));
  EXPECT(info.tokens == TOKENS && info.top_k == TOP_K && info.experts == 2 && info.first_expert == 0);
  EXPECT(info.local_experts == 2 && info.rows == ROWS && info.sent == ROWS && info.dropped == 0);
}

static void expert_rows(void) {
  size_t counts[2] = {7, 7}, needed = 7;
  WALK_BAD_HANDLES(WALK_MOE_PLAN, dsc_moe_plan_t, dsc_moe_plan_expert_rows(bad, counts, 2, &needed));
  WALK_INVALID(dsc_moe_plan_expert_rows(walk_world.moe_plan, NULL, 2, &needed));
  WALK_INVALID(dsc_moe_plan_expert_rows(walk_world.moe_plan, counts, 2, NULL));
  EXPECT(counts[0] == 7 && needed == 7);
  WALK(DSC_TRUNCATED, dsc_moe_plan_expert_rows(walk_world.moe_plan, counts, 1, &needed));
  EXPECT(counts[0] == 2 && counts[1] == 7 && needed == 2);
  WALK(DSC_OK, dsc_moe_plan_expert_rows(walk_world.moe_plan, NULL, 0, &needed));
  WALK(DSC_OK, dsc_moe_plan_expert_rows(walk_world.moe_plan, counts, 2, &needed));
  EXPECT(counts[0] == 2 && counts[1] == 1);
}

static void source_rows(void) {
  size_t counts[2] = {7, 7}, needed = 7;
  WALK_BAD_HANDLES(WALK_MOE_PLAN, dsc_moe_plan_t, dsc_moe_plan_source_rows(bad, counts, 2, &needed));
  WALK_INVALID(dsc_moe_plan_source_rows(walk_world.moe_plan, NULL, 2, &needed));
  WALK_INVALID(dsc_moe_plan_source_rows(walk_world.moe_plan, counts, 2, NULL));
  WALK(DSC_TRUNCATED, dsc_moe_plan_source_rows(walk_world.moe_plan, counts, 1, &needed));
  WALK(DSC_OK, dsc_moe_plan_source_rows(walk_world.moe_plan, counts, 2, &needed));
  EXPECT(counts[0] == 2 && counts[1] == 1 && needed == 2);
}

static void positions(void) {
  int64_t places[SLOTS] = {7, 7, 7, 7};
  size_t needed = 7;
  WALK_BAD_HANDLES(WALK_MOE_PLAN, dsc_moe_plan_t, dsc_moe_plan_positions(bad, places, SLOTS, &needed));
  WALK_INVALID(dsc_moe_plan_positions(walk_world.moe_plan, NULL, SLOTS, &needed));
  WALK_INVALID(dsc_moe_plan_positions(walk_world.moe_plan, places, SLOTS, NULL));
  WALK(DSC_TRUNCATED, dsc_moe_plan_positions(walk_world.moe_plan, places, 1, &needed));
  EXPECT(places[0] == 0 && places[1] == 7 && needed == SLOTS);
  WALK(DSC_OK, dsc_moe_plan_positions(walk_world.moe_plan, places, SLOTS, &needed));
  EXPECT(places[0] == 0 && places[1] == 2 && places[2] == -1 && places[3] == 1);
}

static void dispatch(void) {
  dsc_moe_plan_t* const plan = walk_world.moe_plan;
  void* const stream = &walk_world;
  dsc_work_t* work = walk_world.work;
  WALK_BAD_HANDLES(WALK_MOE_PLAN, dsc_moe_plan_t,
                   dsc_moe_dispatch(bad, tokens, HIDDEN, F32, 1, rows, NULL, &work));
  EXPECT(work == NULL);
  WALK_INVALID(dsc_moe_dispatch(plan, NULL, HIDDEN, F32, 1, rows, NULL, NULL));
  WALK_INVALID(dsc_moe_dispatch(plan, tokens, HIDDEN, F32, 1, NULL, NULL, NULL));
  WALK_INVALID(dsc_moe_dispatch(plan, MISALIGNED(tokens), HIDDEN, F32, 1, rows, NULL, NULL));
  WALK_INVALID(dsc_moe_dispatch(plan, tokens, HIDDEN, F32, 1, MISALIGNED(rows), NULL, NULL));
  WALK_INVALID(dsc_moe_dispatch(plan, tokens, HIDDEN, F32, 1, tokens + 4, NULL, NULL));
  WALK_INVALID(dsc_moe_dispatch(plan, tokens, HIDDEN, 0, 1, rows, NULL, NULL));
  WALK_INVALID(dsc_moe_dispatch(plan, tokens, HIDDEN, F32, 0, rows, NULL, NULL));
  WALK_INVALID(dsc_moe_dispatch(plan, tokens, HIDDEN, F32, 3, rows, NULL, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_moe_dispatch(plan, tokens, HIDDEN, DSC_DTYPE_I32, 1, rows, NULL, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_moe_dispatch(plan, tokens, 1, DSC_DTYPE_F64, 2, rows, NULL, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_moe_dispatch(plan, tokens, HIDDEN, F32, 1, rows, stream, NULL));
  WALK(DSC_ERR_OVERFLOW, dsc_moe_dispatch(plan, tokens, SIZE_MAX / 8, F32, 1, rows, NULL, NULL));
  WALK(DSC_OK, dsc_batch_begin(walk_world.alone));
  WALK(DSC_ERR_STATE, dsc_moe_dispatch(plan, tokens, HIDDEN, F32, 1, rows, NULL, NULL));
  WALK(DSC_OK, dsc_batch_end(walk_world.alone, NULL, NULL));
  EXPECT(rows[0] == 0);
  WALK(DSC_OK, dsc_moe_dispatch(plan, tokens, HIDDEN, F32, 1, rows, NULL, &work));
  WALK(DSC_OK, dsc_work_wait(work, -1, NULL));
  WALK(DSC_OK, dsc_work_destroy(work));
  EXPECT(rows[0] == 1 && rows[4] == 5 && rows[8] == 1);
}

static void combine(void) {
  dsc_moe_plan_t* const plan = walk_world.moe_plan;
  dsc_work_t* work = walk_world.work;
  WALK_BAD_HANDLES(WALK_MOE_PLAN, dsc_moe_plan_t,
                   dsc_moe_combine(bad, rows, weights, HIDDEN, F32, out, returned, NULL, &work));
  EXPECT(work == NULL);
  WALK_INVALID(dsc_moe_combine(plan, NULL, weights, HIDDEN, F32, out, returned, NULL, NULL));
  WALK_INVALID(dsc_moe_combine(plan, rows, MISALIGNED(weights), HIDDEN, F32, out, NULL, NULL, NULL));
  WALK_INVALID(dsc_moe_combine(plan, rows, weights, HIDDEN, F32, NULL, returned, NULL, NULL));
  WALK_INVALID(dsc_moe_combine(plan, rows, weights, HIDDEN, F32, rows, returned, NULL, NULL));
  WALK_INVALID(dsc_moe_combine(plan, rows, weights, HIDDEN, F32, out, out, NULL, NULL));
  WALK_INVALID(dsc_moe_combine(plan, rows, weights, HIDDEN, F32, weights, NULL, NULL, NULL));
  WALK_INVALID(dsc_moe_combine(plan, rows, weights, HIDDEN, F32, out, MISALIGNED(returned), NULL, NULL));
  WALK(DSC_ERR_UNSUPPORTED,
       dsc_moe_combine(plan, rows, weights, HIDDEN, DSC_DTYPE_U8, out, returned, NULL, NULL));
  EXPECT(out[0] == 0 && returned[0] == 0);
  WALK(DSC_OK, dsc_moe_combine(plan, rows, weights, HIDDEN, F32, out, returned, NULL, NULL));
  EXPECT(out[0] == 0.75f && out[4] == 10 && returned[4] == 1 && returned[8] == 0 && returned[12] == 5);
  WALK(DSC_OK, dsc_moe_combine(plan, rows, NULL, HIDDEN, F32, out, NULL, NULL, NULL));
  EXPECT(out[0] == 2 && out[4] == 5);
}

static void combine_backward(void) {
  dsc_moe_plan_t* const plan = walk_world.moe_plan;
  dsc_work_t* work = walk_world.work;
  float *const to = row_gradients, *const of = weight_gradients;
  WALK_BAD_HANDLES(WALK_MOE_PLAN, dsc_moe_plan_t,
                   dsc_moe_combine_backward(bad, out, weights, returned, HIDDEN, F32, to, of, NULL, &work));
  EXPECT(work == NULL);
  WALK_INVALID(dsc_moe_combine_backward(plan, NULL, weights, returned, HIDDEN, F32, to, of, NULL, NULL));
  WALK_INVALID(dsc_moe_combine_backward(plan, out, weights, NULL, HIDDEN, F32, to, of, NULL, NULL));
  WALK_INVALID(dsc_moe_combine_backward(plan, out, weights, returned, HIDDEN, F32, NULL, of, NULL, NULL));
  WALK_INVALID(dsc_moe_combine_backward(plan, out, weights, returned, HIDDEN, F32, out, of, NULL, NULL));
  WALK_INVALID(dsc_moe_combine_backward(plan, out, weights, returned, HIDDEN, F32, to, to, NULL, NULL));
  WALK_INVALID(dsc_moe_combine_backward(plan, out, weights, returned, HIDDEN, F32, to, weights, NULL, NULL));
  EXPECT(to[0] == 0 && of[0] == 0);
  WALK(DSC_OK, dsc_moe_combine_backward(plan, out, weights, returned, HIDDEN, F32, to, of, NULL, NULL));
  EXPECT(to[0] == 1 && to[4] == 10 && to[8] == 0.5f && of[0] == 60 && of[2] == 0 && of[3] == 174);
  WALK(DSC_OK, dsc_moe_combine_backward(plan, out, NULL, NULL, HIDDEN, F32, to, NULL, NULL, NULL));
  EXPECT(to[0] == 2);
}

static void dispatch_backward(void) {
  dsc_moe_plan_t* const plan = walk_world.moe_plan;
  dsc_work_t* work = walk_world.work;
  WALK_BAD_HANDLES(WALK_MOE_PLAN, dsc_moe_plan_t,
                   dsc_moe_dispatch_backward(bad, rows, HIDDEN, F32, out, NULL, &work));
  EXPECT(work == NULL);
  WALK_INVALID(dsc_moe_dispatch_backward(plan, NULL, HIDDEN, F32, out, NULL, NULL));
  WALK_INVALID(dsc_moe_dispatch_backward(plan, rows, HIDDEN, F32, NULL, NULL, NULL));
  WALK_INVALID(dsc_moe_dispatch_backward(plan, rows, HIDDEN, F32, rows, NULL, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_moe_dispatch_backward(plan, rows, HIDDEN, DSC_DTYPE_BOOL, out, NULL, NULL));
  WALK(DSC_OK, dsc_moe_dispatch_backward(plan, rows, HIDDEN, F32, out, NULL, NULL));
  EXPECT(out[0] == 2 && out[7] == 8);
}

static void plan_destroy(void) {
  WALK_BAD_HANDLES_BUT_NULL(WALK_MOE_PLAN, dsc_moe_plan_t, dsc_moe_plan_destroy(bad));
  WALK(DSC_OK, dsc_moe_plan_destroy(NULL));
  WALK(DSC_OK, dsc_moe_plan_destroy(walk_world.moe_plan));
}

const walk_step_t walk_expert_parallel[] = {
    {"dsc_moe_plan_options_init", options_init},
    {"dsc_moe_plan_create", plan_create},
    {"dsc_moe_plan_info", plan_info},
    {"dsc_moe_plan_expert_rows", expert_rows},
    {"dsc_moe_plan_source_rows", source_rows},
    {"dsc_moe_plan_positions", positions},
    {"dsc_moe_dispatch", dispatch},
    {"dsc_moe_combine", combine},
    {"dsc_moe_combine_backward", combine_backward},
    {"dsc_moe_dispatch_backward", dispatch_backward},
    {"dsc_moe_plan_destroy", plan_destroy},
    {NULL, NULL},
};
