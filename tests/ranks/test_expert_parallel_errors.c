/* Errors of the exchange of tokens: ranks that differ, wrong arguments, works, failures.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "moe_layer.h"

/* Ranks create plans that differ. */
static int different_plans(rank_t* self, int kind) {
  dsc_comm_t* group = NULL;
  dsc_moe_plan_t* plan = (dsc_moe_plan_t*)&group;
  moe_sizes_t sizes = moe_small_sizes();
  moe_tokens_t tokens;
  sizes.ranks = self->size;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  moe_tokens_open(&tokens, &sizes, self->rank, 1);
  if (self->rank == 1) {
    if (kind == 0) sizes.experts = 5;
    if (kind == 1) sizes.top_k = 1;
    if (kind == 2) sizes.capacity = 6;
    if (kind == 3) sizes.drop = DSC_MOE_DROP_LIGHTEST;
    if (kind == 4) sizes.experts = 400;
  }
  CHECK_RESULT(self, DSC_ERR_MISMATCH, moe_plan(group, &sizes, &tokens, &plan));
  CHECK(self, plan == NULL);
  static const char* texts[] = {"experts 5, top_k 2, capacity 5", "experts 4, top_k 1, capacity 5",
                                "experts 4, top_k 2, capacity 6", "experts 4, top_k 2, capacity 5",
                                "experts 400, top_k 2, capacity 5"};
  PASS_ON(moe_check_text(self, texts[kind]));
  PASS_ON(moe_check_text(self, "dsc_moe_plan_create: "));
  moe_tokens_close(&tokens);
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

/* Ranks make calls that differ. Nothing is written. */
static int different_calls(rank_t* self, int kind) {
  moe_layer_t it;
  const moe_sizes_t sizes = moe_small_sizes();
  dsc_comm_t *group = NULL, *world = self->world;
  CHECK_OK(self, dsc_comm_split(world, 0, 0, NULL, &group));
  self->world = group;
  const int opened = moe_layer_open(&it, self, &sizes, 9);
  self->world = world;
  PASS_ON(opened);
  const bool differs = self->rank == 1;
  const size_t hidden = differs && kind == 0 ? 7 : 8;
  const dsc_dtype_t dtype = differs && kind == 1 ? DSC_DTYPE_BF16 : DSC_DTYPE_F32;
  const dsc_moe_payload_t payload = differs && kind == 2 ? DSC_MOE_PAYLOAD_F8E4M3 : DSC_MOE_PAYLOAD_PLAIN;
  const size_t bytes = it.info.rows * sizes.hidden * it.bytes;
  memset(it.rows, 0x55, bytes);
  memset(it.weight_gradients, 0x55, sizeof(double));
  if (differs && kind == 3)
    CHECK_RESULT(self, DSC_ERR_MISMATCH,
                 dsc_moe_combine_backward(it.plan, it.gradient, it.weights, it.returned, hidden, dtype,
                                          it.rows, it.weight_gradients, NULL, NULL));
  else
    CHECK_RESULT(self, DSC_ERR_MISMATCH,
                 dsc_moe_dispatch(it.plan, it.own->values, hidden, dtype, payload, it.rows, NULL, NULL));
  static const char* texts[] = {"dispatch, hidden 7, f32", "dispatch, hidden 8, bf16",
                                "dispatch, hidden 8, f32 as f8e4m3", "combine_backward, hidden 8, f32"};
  PASS_ON(moe_check_text(self, texts[kind]));
  for (size_t i = 0; i < bytes; ++i) CHECK(self, it.rows[i] == 0x55);
  CHECK(self, it.weight_gradients[0] == 0x55);
  PASS_ON(moe_layer_close(&it, self));
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

static int disagreements_body(rank_t* self) {
  for (int kind = 0; kind < 5; ++kind) PASS_ON(different_plans(self, kind));
  for (int kind = 0; kind < 4; ++kind) PASS_ON(different_calls(self, kind));
  return 0;
}

static void ranks_disagree(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 4; ++size) assert_int_equal(run_ranks(size, disagreements_body, NULL), 0);
}

static int refused_plan(rank_t* self, dsc_moe_plan_options_t options, const int32_t* experts,
                        const float* weights, const char* text) {
  dsc_moe_plan_t* plan = NULL;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
               dsc_moe_plan_create(self->world, &options, experts, 2, weights, &plan));
  return moe_check_text(self, text);
}

static int refused_plans(rank_t* self) {
  const int32_t experts[] = {0, 3, -1, 4}, good[] = {0, 3, -1, 1};
  const float weights[] = {1, 1, NAN, 1};
  dsc_moe_plan_options_t options, it;
  CHECK_OK(self, dsc_moe_plan_options_init(&options, sizeof options));
  PASS_ON(refused_plan(self, options, good, NULL, "experts is 0, expected 1 to 16777216"));
  options.experts = 4;
  options.top_k = 2;
  PASS_ON(refused_plan(self, options, experts, NULL, "expert_ids[1][1] is 4, expected 0 to 3, or -1"));
  PASS_ON(refused_plan(self, options, NULL, NULL, "expert_ids is NULL, expected 16 bytes"));
  it = options, it.top_k = 65;
  PASS_ON(refused_plan(self, it, good, NULL, "top_k is 65, expected 1 to 64"));
  it = options, it.drop = 3;
  PASS_ON(refused_plan(self, it, good, NULL, "drop is 3, expected 1 (latest) or 2 (lightest)"));
  it = options, it.padded = 1;
  PASS_ON(refused_plan(self, it, good, NULL, "padded is 1 and capacity is 0"));
  it = options, it.drop = DSC_MOE_DROP_LIGHTEST;
  PASS_ON(
      refused_plan(self, it, good, weights, "drop is 2 (lightest) and capacity is 0, expected a capacity"));
  it.capacity = 1;
  PASS_ON(refused_plan(self, it, good, NULL,
                       "weights is NULL and drop is 2 (lightest), expected 4 router weights"));
  PASS_ON(refused_plan(self, it, good, weights, "weights[1][0] is NaN"));
  return 0;
}

/* A wrong argument is refused before other ranks are involved, so the same plan still works. */
static int refusals_body(rank_t* self) {
  moe_layer_t it;
  const moe_sizes_t sizes = moe_small_sizes();
  PASS_ON(refused_plans(self));
  PASS_ON(moe_layer_open(&it, self, &sizes, 4));
  if (it.own->count > 0 && it.info.rows > 0) {
    CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
                 dsc_moe_dispatch(it.plan, NULL, 8, DSC_DTYPE_F32, 1, it.rows, NULL, NULL));
    PASS_ON(moe_check_text(self, "tokens is NULL, expected "));
    CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
                 dsc_moe_dispatch(it.plan, it.rows, 8, DSC_DTYPE_F32, 1, it.rows, NULL, NULL));
    PASS_ON(moe_check_text(self, "rows and tokens overlap, expected separate memory"));
    CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
                 dsc_moe_combine(it.plan, it.rows, NULL, 8, DSC_DTYPE_F32, it.out, it.out, NULL, NULL));
    PASS_ON(moe_check_text(self, "returned and out overlap"));
  }
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
               dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 3, it.rows, NULL, NULL));
  PASS_ON(moe_check_text(self, "payload is 3, expected 1 (plain) or 2 (f8e4m3)"));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED,
               dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F64, 2, it.rows, NULL, NULL));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED,
               dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_I32, 1, it.rows, NULL, NULL));
  PASS_ON(moe_check_text(self, "dtype is i32, expected f32, f64, bf16 or f16"));
  PASS_ON(moe_forward(self, &it, false));
  PASS_ON(moe_backward(self, &it, false));
  PASS_ON(moe_check_layer(self, &it));
  return moe_layer_close(&it, self);
}

static void wrong_arguments(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, refusals_body, NULL), 0);
}

/* A plan has at most one call in progress. The call continues if the plan is destroyed. */
static int in_progress_body(rank_t* self) {
  moe_layer_t it;
  const moe_sizes_t sizes = moe_small_sizes();
  dsc_work_t *work = NULL, *other = NULL;
  PASS_ON(moe_layer_open(&it, self, &sizes, 4));
  CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, &work));
  CHECK_RESULT(self, DSC_ERR_STATE,
               dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, &other));
  PASS_ON(moe_check_text(self, "the previous call on this plan is not complete"));
  CHECK(self, other == NULL);
  PASS_ON(moe_end(self, work));
  PASS_ON(moe_each_row(self, &it, moe_check_row));

  /* The progress of a work that was destroyed without a wait differs between ranks. The next call waits for
   * it. */
  for (int call = 0; call < 100; ++call) {
    CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, &work));
    CHECK_OK(self, dsc_work_destroy(work));
  }
  CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, NULL));
  PASS_ON(moe_each_row(self, &it, moe_check_row));

  /* A work that was destroyed without a wait is complete when a later operation is complete. */
  CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, &work));
  CHECK_OK(self, dsc_work_destroy(work));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  memset(it.rows, 0, it.info.rows * sizes.hidden * it.bytes);
  CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, &work));
  CHECK_OK(self, dsc_moe_plan_destroy(it.plan));
  int32_t done = 0;
  while (done == 0) CHECK_OK(self, dsc_work_test(work, &done));
  PASS_ON(moe_each_row(self, &it, moe_check_row));
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_work_error_info(work, &info));
  CHECK(self, info.code == DSC_OK);
  PASS_ON(moe_end(self, work));
  CHECK_RESULT(self, DSC_ERR_BAD_HANDLE, dsc_moe_plan_destroy(it.plan));
  it.plan = NULL;
  return moe_layer_close(&it, self);
}

static void one_call_in_progress(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 4; size *= 2) assert_int_equal(run_ranks(size, in_progress_body, NULL), 0);
}

/* No rank has tokens, and rows have no elements. */
static int nothing_body(rank_t* self) {
  moe_sizes_t sizes = moe_small_sizes();
  moe_tokens_t none = {.count = 0};
  dsc_moe_plan_t* plan = NULL;
  CHECK_OK(self, moe_plan(self->world, &sizes, &none, &plan));
  dsc_moe_plan_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_moe_plan_info(plan, &info));
  char* rows = calloc(info.rows * 8 + 1, sizeof(float));
  for (size_t hidden = 0; hidden <= 8; hidden += 8)
    for (dsc_moe_payload_t payload = 1; payload <= 2; ++payload) {
      CHECK_OK(self, dsc_moe_dispatch(plan, NULL, hidden, DSC_DTYPE_F32, payload, rows, NULL, NULL));
      CHECK_OK(self, dsc_moe_combine(plan, rows, NULL, hidden, DSC_DTYPE_F32, NULL, NULL, NULL, NULL));
      CHECK_OK(self, dsc_moe_combine_backward(plan, NULL, NULL, NULL, hidden, DSC_DTYPE_F32, rows, NULL, NULL,
                                              NULL));
      CHECK_OK(self, dsc_moe_dispatch_backward(plan, rows, hidden, DSC_DTYPE_F32, NULL, NULL, NULL));
    }
  free(rows);
  CHECK_OK(self, dsc_moe_plan_destroy(plan));
  return 0;
}

static void no_tokens(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; size *= 2) assert_int_equal(run_ranks(size, nothing_body, NULL), 0);
}

/* A rank that waits for the rows of a missing rank gets the cause. */
static int failure_body(rank_t* self) {
  moe_layer_t it;
  const moe_sizes_t sizes = moe_small_sizes();
  dsc_comm_t *group = NULL, *world = self->world;
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_comm_split(world, 0, 0, NULL, &group));
  self->world = group;
  const int opened = moe_layer_open(&it, self, &sizes, 9);
  self->world = world;
  PASS_ON(opened);
  if (self->rank == 1) {
    PASS_ON(ranks_meet(self));
    CHECK_OK(self, dsc_comm_abort(group));
  } else {
    CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, &work));
    PASS_ON(ranks_meet(self));
    CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_work_wait(work, -1, NULL));
    int32_t done = 0;
    CHECK_OK(self, dsc_work_test(work, &done));
    CHECK(self, done == 1);
    CHECK_OK(self, dsc_work_destroy(work));
  }
  CHECK_OK(self, dsc_comm_destroy(group));
  CHECK_RESULT(self, DSC_ERR_BAD_HANDLE,
               dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, NULL));
  return moe_layer_close(&it, self);
}

static void failed_communicators(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, failure_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_disagree),       cmocka_unit_test(wrong_arguments),
      cmocka_unit_test(one_call_in_progress), cmocka_unit_test(no_tokens),
      cmocka_unit_test(failed_communicators),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
