/* The exchange of tokens for mixture-of-experts layers, compared with a layer that one process computes. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "moe_case.h"
#include "reference.h"

/* A layer of this rank, forward and backward. */
typedef struct layer {
  moe_sizes_t sizes;
  moe_tokens_t tokens[RANKS_MAX]; /* of all ranks */
  moe_tokens_t* own;
  dsc_moe_plan_t* plan;
  dsc_moe_plan_info_t info;
  size_t bytes; /* of an element */
  char *rows, *expert_rows, *out, *returned, *weights;
  char *gradient, *row_gradients, *weight_gradients, *token_gradients;
} layer_t;

static const dsc_dtype_t dtypes[] = {DSC_DTYPE_F32, DSC_DTYPE_F64, DSC_DTYPE_BF16};

static double unit(dsc_dtype_t dtype) {
  return dtype == DSC_DTYPE_F64 ? DBL_EPSILON : dtype == DSC_DTYPE_BF16 ? 0x1p-7 : FLT_EPSILON;
}

static char* room(const layer_t* it, size_t rows) {
  return calloc(rows * it->sizes.hidden + 1, sizeof(double));
}

static int layer_open(layer_t* it, rank_t* self, const moe_sizes_t* sizes, uint64_t seed) {
  memset(it, 0, sizeof *it);
  it->sizes = *sizes;
  it->sizes.ranks = self->size;
  it->bytes = element_bytes(sizes->dtype);
  for (int32_t rank = 0; rank < self->size; ++rank)
    moe_tokens_open(&it->tokens[rank], &it->sizes, rank, seed);
  it->own = &it->tokens[self->rank];
  it->info.struct_size = sizeof it->info;
  CHECK_OK(self, moe_plan(self->world, &it->sizes, it->own, &it->plan));
  CHECK_OK(self, dsc_moe_plan_info(it->plan, &it->info));
  const size_t tokens = it->own->count, slots = tokens * sizes->top_k;
  it->rows = room(it, it->info.rows);
  it->expert_rows = room(it, it->info.rows);
  it->row_gradients = room(it, it->info.rows);
  it->out = room(it, tokens);
  it->gradient = room(it, tokens);
  it->token_gradients = room(it, tokens);
  it->returned = room(it, slots);
  it->weights = calloc(slots + 1, sizeof(double));
  it->weight_gradients = calloc(slots + 1, sizeof(double));
  for (size_t slot = 0; slot < slots; ++slot)
    moe_set_weight(sizes->dtype, it->weights, slot, it->own->weights[slot]);
  for (size_t i = 0; i < tokens * sizes->hidden; ++i)
    moe_set(sizes->dtype, it->gradient, i, (double)((i * 7 + (size_t)self->rank) % 13) / 4 - 1.5);
  return 0;
}

static int layer_close(layer_t* it, rank_t* self) {
  char* all[] = {it->rows,          it->expert_rows,      it->out,
                 it->returned,      it->weights,          it->gradient,
                 it->row_gradients, it->weight_gradients, it->token_gradients};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) free(all[i]);
  for (int32_t rank = 0; rank < self->size; ++rank) moe_tokens_close(&it->tokens[rank]);
  CHECK_OK(self, dsc_moe_plan_destroy(it->plan));
  return 0;
}

/* Calls of this rank's rows in their order: expert, source, slot. Gives 0, or what `visit` gives. */
typedef int (*visit_t)(rank_t* self, layer_t* it, size_t row, size_t expert, int32_t source, size_t slot);

static int each_row(rank_t* self, layer_t* it, visit_t visit) {
  size_t row = 0;
  for (size_t e = 0; e < it->info.local_experts; ++e)
    for (int32_t source = 0; source < self->size; ++source) {
      if (it->sizes.padded) row = (e * (size_t)self->size + (size_t)source) * it->sizes.capacity;
      const moe_tokens_t* from = &it->tokens[source];
      for (size_t slot = 0; slot < from->count * it->sizes.top_k; ++slot)
        if (from->kept[slot] && (size_t)from->experts[slot] == it->info.first_expert + e)
          PASS_ON(visit(self, it, row++, it->info.first_expert + e, source, slot));
    }
  return 0;
}

static double number(const layer_t* it, const char* rows, size_t row, size_t column) {
  return load_real(rows, row * it->sizes.hidden + column, it->sizes.dtype);
}

static void set_number(const layer_t* it, char* rows, size_t row, size_t column, double value) {
  moe_set(it->sizes.dtype, rows, row * it->sizes.hidden + column, value);
}

static int check_row(rank_t* self, layer_t* it, size_t row, size_t expert, int32_t source, size_t slot) {
  const size_t bytes = it->sizes.hidden * it->bytes, token = slot / it->sizes.top_k;
  if (memcmp(it->rows + row * bytes, it->tokens[source].values + token * bytes, bytes) != 0)
    FAIL(self, "row %zu is not token %zu of rank %d, for expert %zu", row, token, source, expert);
  return 0;
}

static int apply_expert(rank_t* self, layer_t* it, size_t row, size_t expert, int32_t source, size_t slot) {
  (void)self, (void)source, (void)slot;
  for (size_t c = 0; c < it->sizes.hidden; ++c)
    set_number(it, it->expert_rows, row, c, moe_expert(expert, number(it, it->rows, row, c)));
  return 0;
}

static int apply_slope(rank_t* self, layer_t* it, size_t row, size_t expert, int32_t source, size_t slot) {
  (void)self, (void)source, (void)slot;
  for (size_t c = 0; c < it->sizes.hidden; ++c)
    set_number(it, it->row_gradients, row, c,
               number(it, it->row_gradients, row, c) * moe_slope(expert, number(it, it->rows, row, c)));
  return 0;
}

/* Waits for the work of a call, or has none. */
static int end(rank_t* self, dsc_work_t* work) {
  if (!work) return 0;
  CHECK_OK(self, dsc_work_wait(work, NULL, -1));
  CHECK_OK(self, dsc_work_destroy(work));
  return 0;
}

static int forward(rank_t* self, layer_t* it, bool starts) {
  dsc_work_t* work = NULL;
  dsc_work_t** given = starts ? &work : NULL;
  memset(it->rows, 0x55, it->info.rows * it->sizes.hidden * it->bytes);
  CHECK_OK(self, dsc_moe_dispatch(it->plan, it->own->values, it->sizes.hidden, it->sizes.dtype,
                                  DSC_MOE_PAYLOAD_PLAIN, it->rows, NULL, given));
  PASS_ON(end(self, work));
  PASS_ON(each_row(self, it, apply_expert));
  CHECK_OK(self, dsc_moe_combine(it->plan, it->expert_rows, it->weights, it->sizes.hidden, it->sizes.dtype,
                                 it->out, it->returned, NULL, given));
  return end(self, work);
}

static int backward(rank_t* self, layer_t* it, bool starts) {
  dsc_work_t* work = NULL;
  dsc_work_t** given = starts ? &work : NULL;
  CHECK_OK(self,
           dsc_moe_combine_backward(it->plan, it->gradient, it->weights, it->returned, it->sizes.hidden,
                                    it->sizes.dtype, it->row_gradients, it->weight_gradients, NULL, given));
  PASS_ON(end(self, work));
  PASS_ON(each_row(self, it, apply_slope));
  CHECK_OK(self, dsc_moe_dispatch_backward(it->plan, it->row_gradients, it->sizes.hidden, it->sizes.dtype,
                                           it->token_gradients, NULL, given));
  return end(self, work);
}

static int check_near(rank_t* self, const char* what, size_t at, double found, double expected,
                      double bound) {
  if (fabs(found - expected) <= bound) return 0;
  FAIL(self, "%s %zu is %.17g, expected %.17g, at most %g away", what, at, found, expected, bound);
}

/* What the layer makes of one token's element, and the gradient of it. */
static int check_element(rank_t* self, const layer_t* it, size_t token, size_t c) {
  const double x = number(it, it->own->values, token, c), g = number(it, it->gradient, token, c);
  double out = 0, slope = 0, size = 0;
  for (size_t slot = token * it->sizes.top_k; slot < (token + 1) * it->sizes.top_k; ++slot) {
    if (!it->own->kept[slot]) continue;
    const size_t expert = (size_t)it->own->experts[slot];
    out += it->own->weights[slot] * moe_expert(expert, x);
    slope += it->own->weights[slot] * g * moe_slope(expert, x);
    size += 4 * (fabs(x) + fabs(g) + 1);
  }
  const double bound = 4 * size * unit(it->sizes.dtype);
  const size_t at = token * it->sizes.hidden + c;
  PASS_ON(check_near(self, "output", at, number(it, it->out, token, c), out, bound));
  return check_near(self, "token gradient", at, number(it, it->token_gradients, token, c), slope, bound);
}

static int check_slot(rank_t* self, const layer_t* it, size_t slot) {
  const size_t token = slot / it->sizes.top_k;
  double expected = 0, size = 0;
  for (size_t c = 0; c < it->sizes.hidden; ++c) {
    const double row = number(it, it->returned, slot, c), g = number(it, it->gradient, token, c);
    if (!it->own->kept[slot]) CHECK(self, row == 0);
    expected += row * g;
    size += fabs(row * g);
  }
  const double unit_of_weight = it->sizes.dtype == DSC_DTYPE_F64 ? DBL_EPSILON : FLT_EPSILON;
  return check_near(self, "weight gradient", slot, moe_weight(it->sizes.dtype, it->weight_gradients, slot),
                    expected, size * unit_of_weight * 4);
}

/* Padding is zeros. */
static int check_padding(rank_t* self, layer_t* it) {
  if (!it->sizes.padded) return 0;
  double sum = 0, expected = 0;
  for (size_t i = 0; i < it->info.rows * it->sizes.hidden; ++i)
    sum += fabs(load_real(it->rows, i, it->sizes.dtype));
  for (int32_t source = 0; source < self->size; ++source)
    for (size_t slot = 0; slot < it->tokens[source].count * it->sizes.top_k; ++slot) {
      const moe_tokens_t* from = &it->tokens[source];
      if (!from->kept[slot] || moe_holder(&it->sizes, (size_t)from->experts[slot]) != self->rank) continue;
      for (size_t c = 0; c < it->sizes.hidden; ++c)
        expected += fabs(number(it, from->values, slot / it->sizes.top_k, c));
    }
  return check_near(self, "sum of all rows of rank", (size_t)self->rank, sum, expected, 0);
}

static int count_slot(rank_t* self, layer_t* it, size_t row, size_t expert, int32_t source, size_t slot) {
  (void)row, (void)slot;
  size_t counts[RANKS_MAX * 16], needed = 0;
  CHECK_OK(self, dsc_moe_plan_source_rows(it->plan, counts, RANKS_MAX * 16, &needed));
  CHECK(self, needed == it->info.local_experts * (size_t)self->size);
  const size_t at = (expert - it->info.first_expert) * (size_t)self->size + (size_t)source;
  size_t expected = 0;
  for (size_t s = 0; s < it->tokens[source].count * it->sizes.top_k; ++s)
    expected += it->tokens[source].kept[s] && (size_t)it->tokens[source].experts[s] == expert;
  CHECK(self, counts[at] == expected);
  return 0;
}

/* What the plan tells of itself. */
static int check_plan(rank_t* self, layer_t* it) {
  int64_t positions[MOST_SLOTS];
  size_t needed = 0, kept = 0, wanted = 0, rows[64], total = 0, counted = 0;
  CHECK_OK(self, dsc_moe_plan_positions(it->plan, positions, MOST_SLOTS, &needed));
  CHECK(self, needed == it->own->count * it->sizes.top_k);
  for (size_t slot = 0; slot < needed; ++slot) {
    CHECK(self, (positions[slot] >= 0) == it->own->kept[slot]);
    for (size_t other = 0; other < slot; ++other) /* all differ, in the order of experts and slots */
      if (it->own->kept[slot] && it->own->kept[other])
        CHECK(self,
              (positions[other] < positions[slot]) == (it->own->experts[other] <= it->own->experts[slot]));
    kept += it->own->kept[slot];
    wanted += it->own->experts[slot] >= 0;
  }
  CHECK(self, it->info.sent == kept && it->info.dropped == wanted - kept);
  CHECK(self, it->info.tokens == it->own->count && it->info.top_k == it->sizes.top_k);
  CHECK_OK(self, dsc_moe_plan_expert_rows(it->plan, rows, 64, &needed));
  CHECK(self, needed == it->info.local_experts);
  for (size_t e = 0; e < needed; ++e) total += rows[e];
  for (int32_t source = 0; source < self->size; ++source)
    for (size_t slot = 0; slot < it->tokens[source].count * it->sizes.top_k; ++slot)
      counted += it->tokens[source].kept[slot] &&
                 moe_holder(&it->sizes, (size_t)it->tokens[source].experts[slot]) == self->rank;
  CHECK(self, total == counted);
  CHECK(self,
        it->info.rows == (it->sizes.padded ? needed * (size_t)self->size * it->sizes.capacity : counted));
  return each_row(self, it, count_slot);
}

static int check_layer(rank_t* self, layer_t* it) {
  PASS_ON(check_plan(self, it));
  PASS_ON(each_row(self, it, check_row));
  PASS_ON(check_padding(self, it));
  for (size_t token = 0; token < it->own->count; ++token)
    for (size_t c = 0; c < it->sizes.hidden; ++c) PASS_ON(check_element(self, it, token, c));
  for (size_t slot = 0; slot < it->own->count * it->sizes.top_k; ++slot) PASS_ON(check_slot(self, it, slot));
  return 0;
}

/* Blocking and started, and with the rows of the call before in the plan's memory. */
static int run_layer(rank_t* self, const moe_sizes_t* sizes, uint64_t seed) {
  layer_t it;
  if (!moe_is_offered(sizes)) return 0;
  PASS_ON(layer_open(&it, self, sizes, seed));
  for (int starts = 0; starts < 2; ++starts) {
    PASS_ON(forward(self, &it, starts));
    PASS_ON(backward(self, &it, starts));
    PASS_ON(check_layer(self, &it));
  }
  return layer_close(&it, self);
}

static int dense_body(rank_t* self) {
  static const size_t experts[] = {1, 2, 3, 4, 5, 8, 13}, top_ks[] = {1, 2, 3, 8},
                      hiddens[] = {1, 5, 64, 131};
  uint64_t seed = 1;
  for (size_t e = 0; e < 7; ++e)
    for (size_t k = 0; k < 4; k += test_scale())
      for (size_t capacity = 0; capacity < 4; ++capacity)
        for (int kind = 0; kind < (capacity == 0 ? 1 : 4); ++kind) {
          const moe_sizes_t sizes = {.experts = experts[e],
                                     .top_k = top_ks[k],
                                     .capacity = capacity,
                                     .hidden = hiddens[seed % 4],
                                     .drop = kind & 1 ? DSC_MOE_DROP_LIGHTEST : DSC_MOE_DROP_LATEST,
                                     .padded = kind >> 1,
                                     .dtype = dtypes[seed % 3]};
          PASS_ON(run_layer(self, &sizes, seed++));
        }
  return 0;
}

static void as_in_one_process(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, dense_body, NULL), 0);
}

static double total(const layer_t* it) {
  double sum = 0;
  for (size_t i = 0; i < it->own->count * it->sizes.hidden; ++i)
    sum += load_real(it->out, i, DSC_DTYPE_F64) * load_real(it->gradient, i, DSC_DTYPE_F64);
  return sum;
}

/* The slope of this rank's sum of outputs by one number, which all ranks change at once: a token's output
 * depends on no other token. */
static int slope_by(rank_t* self, layer_t* it, double* number_of, double* slope) {
  const double h = 0x1p-12, kept = number_of ? *number_of : 0;
  double sums[2];
  for (int side = 0; side < 2; ++side) {
    if (number_of) *number_of = kept + (side == 0 ? -h : h);
    PASS_ON(forward(self, it, false));
    sums[side] = total(it);
  }
  if (number_of) *number_of = kept;
  *slope = (sums[1] - sums[0]) / (2 * h);
  return 0;
}

static int slope_body(rank_t* self) {
  const moe_sizes_t sizes = {.experts = 5,
                             .top_k = 2,
                             .capacity = 3,
                             .hidden = 3,
                             .drop = DSC_MOE_DROP_LIGHTEST,
                             .padded = ranks_are_on_several_hosts(),
                             .dtype = DSC_DTYPE_F64};
  layer_t it;
  PASS_ON(layer_open(&it, self, &sizes, 77));
  PASS_ON(forward(self, &it, false));
  PASS_ON(backward(self, &it, false));
  const size_t values = it.own->count * sizes.hidden, slots = it.own->count * sizes.top_k;
  for (size_t i = 0; i < (size_t)MOST_TOKENS * 5; ++i) {
    const bool is_value = i < (size_t)MOST_TOKENS * 3;
    const size_t at = is_value ? i : i - (size_t)MOST_TOKENS * 3;
    double* place = is_value ? (double*)it.own->values + at : (double*)it.weights + at;
    const bool exists = at < (is_value ? values : slots);
    double slope = 0;
    PASS_ON(slope_by(self, &it, exists ? place : NULL, &slope));
    const char* found = is_value ? it.token_gradients : it.weight_gradients;
    if (exists) PASS_ON(check_near(self, "slope", i, load_real(found, at, DSC_DTYPE_F64), slope, 1e-9));
  }
  return layer_close(&it, self);
}

static void gradients_are_slopes(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; size *= 2) assert_int_equal(run_ranks(size, slope_body, NULL), 0);
}

/* Elements as 8-bit floats, at most as far away as the header says. */
static int check_fp8_row(rank_t* self, layer_t* it, size_t row, size_t expert, int32_t source, size_t slot) {
  (void)expert;
  const size_t token = slot / it->sizes.top_k;
  for (size_t c = 0; c < it->sizes.hidden; ++c) {
    const size_t begin = c / 128 * 128,
                 end_of_block = begin + 128 < it->sizes.hidden ? begin + 128 : it->sizes.hidden;
    double most = 0x1p-100;
    for (size_t i = begin; i < end_of_block; ++i)
      most = fmax(most, fabs(number(it, it->tokens[source].values, token, i)));
    const double x = number(it, it->tokens[source].values, token, c), y = number(it, it->rows, row, c);
    const double bound = fmax(fabs(x) / 16, most / 448 / 1024) * (1 + 0x1p-20);
    const double rounding = it->sizes.dtype == DSC_DTYPE_BF16 ? fabs(y) * 0x1p-8 : fabs(y) * 0x1p-24;
    PASS_ON(check_near(self, "element", c, y, x, bound + rounding));
  }
  return 0;
}

static int fp8_body(rank_t* self) {
  for (int kind = 0; kind < 8; ++kind) {
    const moe_sizes_t sizes = {.experts = 1 + 3 * (kind & 1),
                               .top_k = 2,
                               .capacity = 4,
                               .hidden = kind & 2 ? 300 : 128,
                               .drop = DSC_MOE_DROP_LATEST,
                               .padded = kind & 1,
                               .dtype = kind & 4 ? DSC_DTYPE_BF16 : DSC_DTYPE_F32};
    layer_t it;
    if (!moe_is_offered(&sizes)) continue;
    PASS_ON(layer_open(&it, self, &sizes, 5 + (uint64_t)kind));
    for (int32_t rank = 0; rank < self->size; ++rank) /* numbers of very different sizes */
      if (it.tokens[rank].count > 0 && sizes.dtype == DSC_DTYPE_F32)
        for (size_t c = 0; c < sizes.hidden; ++c)
          moe_set(sizes.dtype, it.tokens[rank].values, c, ldexp(1 + (double)c / 512, -(int)(c % 120)));
    for (int repeat = 0; repeat < 2; ++repeat) {
      CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, sizes.hidden, sizes.dtype,
                                      DSC_MOE_PAYLOAD_F8E4M3, it.rows, NULL, NULL));
      PASS_ON(each_row(self, &it, check_fp8_row));
      PASS_ON(forward(self, &it, false)); /* plain rows in between */
      PASS_ON(each_row(self, &it, check_row));
    }
    PASS_ON(layer_close(&it, self));
  }
  return 0;
}

static void eight_bit_floats(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; size *= 2) assert_int_equal(run_ranks(size, fp8_body, NULL), 0);
}

static moe_sizes_t small_sizes(void) {
  return (moe_sizes_t){.experts = 4,
                       .top_k = 2,
                       .capacity = 5,
                       .hidden = 8,
                       .drop = DSC_MOE_DROP_LATEST,
                       .padded = ranks_are_on_several_hosts(),
                       .dtype = DSC_DTYPE_F32};
}

static int check_text(rank_t* self, const char* expected) {
  if (strstr(dsc_last_error_message(), expected) != NULL) return 0;
  FAIL(self, "the message has no \"%s\": %s", expected, dsc_last_error_message());
}

/* A block with an infinity arrives as NaNs, and no other. */
static int fp8_nonfinite_body(rank_t* self) {
  layer_t it;
  moe_sizes_t sizes = small_sizes();
  sizes.experts = sizes.top_k = 1;
  sizes.hidden = 256;
  PASS_ON(layer_open(&it, self, &sizes, 3));
  for (size_t token = 0; token < it.own->count; ++token) {
    set_number(&it, it.own->values, token, 5, token % 2 == 0 ? INFINITY : NAN);
    set_number(&it, it.own->values, token, 6, 1);
  }
  CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, sizes.hidden, sizes.dtype, DSC_MOE_PAYLOAD_F8E4M3,
                                  it.rows, NULL, NULL));
  size_t counts[RANKS_MAX], needed = 0;
  CHECK_OK(self, dsc_moe_plan_source_rows(it.plan, counts, RANKS_MAX, &needed));
  size_t at = 0;
  for (size_t source = 0; source < needed; ++source) {
    if (sizes.padded) at = source * sizes.capacity;
    for (size_t row = 0; row < counts[source]; ++row, ++at)
      for (size_t c = 0; c < sizes.hidden; ++c) CHECK(self, isnan(number(&it, it.rows, at, c)) == (c < 128));
  }
  return layer_close(&it, self);
}

static void eight_bit_floats_of_infinity(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, fp8_nonfinite_body, NULL), 0);
}

/* A plan of ranks that differ. */
static int different_plans(rank_t* self, int kind) {
  dsc_comm_t* group = NULL;
  dsc_moe_plan_t* plan = (dsc_moe_plan_t*)&group;
  moe_sizes_t sizes = small_sizes();
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
  PASS_ON(check_text(self, texts[kind]));
  PASS_ON(check_text(self, "dsc_moe_plan_create: "));
  moe_tokens_close(&tokens);
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

/* Calls of ranks that differ. Nothing is written. */
static int different_calls(rank_t* self, int kind) {
  layer_t it;
  const moe_sizes_t sizes = small_sizes();
  dsc_comm_t *group = NULL, *world = self->world;
  CHECK_OK(self, dsc_comm_split(world, 0, 0, NULL, &group));
  self->world = group;
  const int opened = layer_open(&it, self, &sizes, 9);
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
  PASS_ON(check_text(self, texts[kind]));
  for (size_t i = 0; i < bytes; ++i) CHECK(self, it.rows[i] == 0x55);
  CHECK(self, it.weight_gradients[0] == 0x55);
  PASS_ON(layer_close(&it, self));
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

static int refused_plan(rank_t* self, dsc_moe_options_t options, const int32_t* experts, const float* weights,
                        const char* text) {
  dsc_moe_plan_t* plan = NULL;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
               dsc_moe_plan_create(self->world, &options, experts, 2, weights, &plan));
  return check_text(self, text);
}

static int refused_plans(rank_t* self) {
  const int32_t experts[] = {0, 3, -1, 4}, good[] = {0, 3, -1, 1};
  const float weights[] = {1, 1, NAN, 1};
  dsc_moe_options_t options, it;
  CHECK_OK(self, dsc_moe_options_init(&options, sizeof options));
  PASS_ON(refused_plan(self, options, good, NULL, "experts is 0, expected 1 to 2147483647"));
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
  it = options, it.drop = DSC_MOE_DROP_LIGHTEST, it.capacity = 1;
  PASS_ON(refused_plan(self, it, good, NULL, "weights is NULL, expected 16 bytes"));
  PASS_ON(refused_plan(self, it, good, weights, "weights[1][0] is NaN"));
  return 0;
}

/* A wrong argument is told before any rank can notice: the same plan then works. */
static int refusals_body(rank_t* self) {
  layer_t it;
  const moe_sizes_t sizes = small_sizes();
  PASS_ON(refused_plans(self));
  PASS_ON(layer_open(&it, self, &sizes, 4));
  if (it.own->count > 0 && it.info.rows > 0) {
    CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
                 dsc_moe_dispatch(it.plan, NULL, 8, DSC_DTYPE_F32, 1, it.rows, NULL, NULL));
    PASS_ON(check_text(self, "tokens is NULL, expected "));
    CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
                 dsc_moe_dispatch(it.plan, it.rows, 8, DSC_DTYPE_F32, 1, it.rows, NULL, NULL));
    PASS_ON(check_text(self, "rows and tokens overlap, expected separate memory"));
    CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
                 dsc_moe_combine(it.plan, it.rows, NULL, 8, DSC_DTYPE_F32, it.out, it.out, NULL, NULL));
    PASS_ON(check_text(self, "returned and out overlap"));
  }
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
               dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 3, it.rows, NULL, NULL));
  PASS_ON(check_text(self, "payload is 3, expected 1 (plain) or 2 (f8e4m3)"));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED,
               dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F64, 2, it.rows, NULL, NULL));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED,
               dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_I32, 1, it.rows, NULL, NULL));
  PASS_ON(check_text(self, "dtype is i32, expected f32, f64, bf16 or f16"));
  PASS_ON(forward(self, &it, false));
  PASS_ON(backward(self, &it, false));
  PASS_ON(check_layer(self, &it));
  return layer_close(&it, self);
}

static void wrong_arguments(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, refusals_body, NULL), 0);
}

/* A plan has one call in progress, which goes on when the plan is destroyed. */
static int in_progress_body(rank_t* self) {
  layer_t it;
  const moe_sizes_t sizes = small_sizes();
  dsc_work_t *work = NULL, *other = NULL;
  PASS_ON(layer_open(&it, self, &sizes, 4));
  CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, &work));
  CHECK_RESULT(self, DSC_ERR_STATE,
               dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, &other));
  PASS_ON(check_text(self, "the work of the call before on this plan is not complete"));
  CHECK(self, other == NULL);
  PASS_ON(end(self, work));
  PASS_ON(each_row(self, &it, check_row));

  /* A work that was destroyed without a wait is complete when a later operation is. */
  CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, &work));
  CHECK_OK(self, dsc_work_destroy(work));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  memset(it.rows, 0, it.info.rows * sizes.hidden * it.bytes);
  CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, &work));
  CHECK_OK(self, dsc_moe_plan_destroy(it.plan));
  int32_t done = 0;
  while (done == 0) CHECK_OK(self, dsc_work_test(work, &done));
  PASS_ON(each_row(self, &it, check_row));
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_work_error(work, &info));
  CHECK(self, info.code == DSC_OK);
  PASS_ON(end(self, work));
  CHECK_RESULT(self, DSC_ERR_BAD_HANDLE, dsc_moe_plan_destroy(it.plan));
  it.plan = NULL;
  return layer_close(&it, self);
}

static void one_call_in_progress(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 4; size *= 2) assert_int_equal(run_ranks(size, in_progress_body, NULL), 0);
}

/* No token anywhere, and rows of no elements. */
static int nothing_body(rank_t* self) {
  moe_sizes_t sizes = small_sizes();
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

/* Who waits for the rows of a rank that is not there gets the cause. */
static int failure_body(rank_t* self) {
  layer_t it;
  const moe_sizes_t sizes = small_sizes();
  dsc_comm_t *group = NULL, *world = self->world;
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_comm_split(world, 0, 0, NULL, &group));
  self->world = group;
  const int opened = layer_open(&it, self, &sizes, 9);
  self->world = world;
  PASS_ON(opened);
  if (self->rank == 1) {
    PASS_ON(ranks_meet(self));
    CHECK_OK(self, dsc_comm_abort(group));
  } else {
    CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, &work));
    PASS_ON(ranks_meet(self));
    CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_work_wait(work, NULL, -1));
    int32_t done = 0;
    CHECK_OK(self, dsc_work_test(work, &done));
    CHECK(self, done == 1);
    CHECK_OK(self, dsc_work_destroy(work));
  }
  CHECK_OK(self, dsc_comm_destroy(group));
  CHECK_RESULT(self, DSC_ERR_BAD_HANDLE,
               dsc_moe_dispatch(it.plan, it.own->values, 8, DSC_DTYPE_F32, 1, it.rows, NULL, NULL));
  return layer_close(&it, self);
}

static void failed_communicators(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, failure_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_in_one_process),    cmocka_unit_test(gradients_are_slopes),
      cmocka_unit_test(eight_bit_floats),     cmocka_unit_test(eight_bit_floats_of_infinity),
      cmocka_unit_test(ranks_disagree),       cmocka_unit_test(wrong_arguments),
      cmocka_unit_test(one_call_in_progress), cmocka_unit_test(no_tokens),
      cmocka_unit_test(failed_communicators),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
