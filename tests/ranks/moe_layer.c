#include "moe_layer.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

static double unit(dsc_dtype_t dtype) {
  return dtype == DSC_DTYPE_F64 ? DBL_EPSILON : dtype == DSC_DTYPE_BF16 ? 0x1p-7 : FLT_EPSILON;
}

static char* room(const moe_layer_t* it, size_t rows) {
  return calloc(rows * it->sizes.hidden + 1, sizeof(double));
}

int moe_layer_open(moe_layer_t* it, rank_t* self, const moe_sizes_t* sizes, uint64_t seed) {
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

int moe_layer_close(moe_layer_t* it, rank_t* self) {
  char* all[] = {it->rows,          it->expert_rows,      it->out,
                 it->returned,      it->weights,          it->gradient,
                 it->row_gradients, it->weight_gradients, it->token_gradients};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) free(all[i]);
  for (int32_t rank = 0; rank < self->size; ++rank) moe_tokens_close(&it->tokens[rank]);
  CHECK_OK(self, dsc_moe_plan_destroy(it->plan));
  return 0;
}

int moe_each_row(rank_t* self, moe_layer_t* it, moe_visit_t visit) {
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

double moe_number(const moe_layer_t* it, const char* rows, size_t row, size_t column) {
  return load_real(rows, row * it->sizes.hidden + column, it->sizes.dtype);
}

void moe_set_number(const moe_layer_t* it, char* rows, size_t row, size_t column, double value) {
  moe_set(it->sizes.dtype, rows, row * it->sizes.hidden + column, value);
}

int moe_check_row(rank_t* self, moe_layer_t* it, size_t row, size_t expert, int32_t source, size_t slot) {
  const size_t bytes = it->sizes.hidden * it->bytes, token = slot / it->sizes.top_k;
  if (memcmp(it->rows + row * bytes, it->tokens[source].values + token * bytes, bytes) != 0)
    FAIL(self, "row %zu is not token %zu of rank %d, for expert %zu", row, token, source, expert);
  return 0;
}

static int apply_expert(rank_t* self, moe_layer_t* it, size_t row, size_t expert, int32_t source,
                        size_t slot) {
  (void)self, (void)source, (void)slot;
  for (size_t c = 0; c < it->sizes.hidden; ++c)
    moe_set_number(it, it->expert_rows, row, c, moe_expert(expert, moe_number(it, it->rows, row, c)));
  return 0;
}

static int apply_slope(rank_t* self, moe_layer_t* it, size_t row, size_t expert, int32_t source,
                       size_t slot) {
  (void)self, (void)source, (void)slot;
  for (size_t c = 0; c < it->sizes.hidden; ++c)
    moe_set_number(
        it, it->row_gradients, row, c,
        moe_number(it, it->row_gradients, row, c) * moe_slope(expert, moe_number(it, it->rows, row, c)));
  return 0;
}

int moe_end(rank_t* self, dsc_work_t* work) {
  if (!work) return 0;
  CHECK_OK(self, dsc_work_wait(work, -1, NULL));
  CHECK_OK(self, dsc_work_destroy(work));
  return 0;
}

int moe_forward(rank_t* self, moe_layer_t* it, bool starts) {
  dsc_work_t* work = NULL;
  dsc_work_t** given = starts ? &work : NULL;
  memset(it->rows, 0x55, it->info.rows * it->sizes.hidden * it->bytes);
  CHECK_OK(self, dsc_moe_dispatch(it->plan, it->own->values, it->sizes.hidden, it->sizes.dtype,
                                  DSC_MOE_PAYLOAD_PLAIN, it->rows, NULL, given));
  PASS_ON(moe_end(self, work));
  PASS_ON(moe_each_row(self, it, apply_expert));
  CHECK_OK(self, dsc_moe_combine(it->plan, it->expert_rows, it->weights, it->sizes.hidden, it->sizes.dtype,
                                 it->out, it->returned, NULL, given));
  return moe_end(self, work);
}

int moe_backward(rank_t* self, moe_layer_t* it, bool starts) {
  dsc_work_t* work = NULL;
  dsc_work_t** given = starts ? &work : NULL;
  CHECK_OK(self,
           dsc_moe_combine_backward(it->plan, it->gradient, it->weights, it->returned, it->sizes.hidden,
                                    it->sizes.dtype, it->row_gradients, it->weight_gradients, NULL, given));
  PASS_ON(moe_end(self, work));
  PASS_ON(moe_each_row(self, it, apply_slope));
  CHECK_OK(self, dsc_moe_dispatch_backward(it->plan, it->row_gradients, it->sizes.hidden, it->sizes.dtype,
                                           it->token_gradients, NULL, given));
  return moe_end(self, work);
}

int moe_check_near(rank_t* self, const char* what, size_t at, double found, double expected, double bound) {
  if (fabs(found - expected) <= bound) return 0;
  FAIL(self, "%s %zu is %.17g, expected %.17g, at most %g away", what, at, found, expected, bound);
}

/* Checks the layer's output for one element of a token, and its gradient. */
static int check_element(rank_t* self, const moe_layer_t* it, size_t token, size_t c) {
  const double x = moe_number(it, it->own->values, token, c), g = moe_number(it, it->gradient, token, c);
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
  PASS_ON(moe_check_near(self, "output", at, moe_number(it, it->out, token, c), out, bound));
  return moe_check_near(self, "token gradient", at, moe_number(it, it->token_gradients, token, c), slope,
                        bound);
}

static int check_slot(rank_t* self, const moe_layer_t* it, size_t slot) {
  const size_t token = slot / it->sizes.top_k;
  double expected = 0, size = 0;
  for (size_t c = 0; c < it->sizes.hidden; ++c) {
    const double row = moe_number(it, it->returned, slot, c), g = moe_number(it, it->gradient, token, c);
    if (!it->own->kept[slot]) CHECK(self, row == 0);
    expected += row * g;
    size += fabs(row * g);
  }
  const double unit_of_weight = it->sizes.dtype == DSC_DTYPE_F64 ? DBL_EPSILON : FLT_EPSILON;
  return moe_check_near(self, "weight gradient", slot,
                        moe_weight(it->sizes.dtype, it->weight_gradients, slot), expected,
                        size * unit_of_weight * 4);
}

/* Checks that padding is zeros. */
static int check_padding(rank_t* self, moe_layer_t* it) {
  if (!it->sizes.padded) return 0;
  double sum = 0, expected = 0;
  for (size_t i = 0; i < it->info.rows * it->sizes.hidden; ++i)
    sum += fabs(load_real(it->rows, i, it->sizes.dtype));
  for (int32_t source = 0; source < self->size; ++source)
    for (size_t slot = 0; slot < it->tokens[source].count * it->sizes.top_k; ++slot) {
      const moe_tokens_t* from = &it->tokens[source];
      if (!from->kept[slot] || moe_holder(&it->sizes, (size_t)from->experts[slot]) != self->rank) continue;
      for (size_t c = 0; c < it->sizes.hidden; ++c)
        expected += fabs(moe_number(it, from->values, slot / it->sizes.top_k, c));
    }
  return moe_check_near(self, "sum of all rows of rank", (size_t)self->rank, sum, expected, 0);
}

static int count_slot(rank_t* self, moe_layer_t* it, size_t row, size_t expert, int32_t source, size_t slot) {
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

/* Checks the plan's own data. */
static int check_plan(rank_t* self, moe_layer_t* it) {
  int64_t positions[MOST_SLOTS];
  size_t needed = 0, kept = 0, wanted = 0, rows[64], total = 0, counted = 0;
  CHECK_OK(self, dsc_moe_plan_positions(it->plan, positions, MOST_SLOTS, &needed));
  CHECK(self, needed == it->own->count * it->sizes.top_k);
  for (size_t slot = 0; slot < needed; ++slot) {
    CHECK(self, (positions[slot] >= 0) == it->own->kept[slot]);
    /* all positions differ, and they are in the order of experts and slots */
    for (size_t other = 0; other < slot; ++other)
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
  return moe_each_row(self, it, count_slot);
}

int moe_check_layer(rank_t* self, moe_layer_t* it) {
  PASS_ON(check_plan(self, it));
  PASS_ON(moe_each_row(self, it, moe_check_row));
  PASS_ON(check_padding(self, it));
  for (size_t token = 0; token < it->own->count; ++token)
    for (size_t c = 0; c < it->sizes.hidden; ++c) PASS_ON(check_element(self, it, token, c));
  for (size_t slot = 0; slot < it->own->count * it->sizes.top_k; ++slot) PASS_ON(check_slot(self, it, slot));
  return 0;
}

moe_sizes_t moe_small_sizes(void) {
  return (moe_sizes_t){.experts = 4,
                       .top_k = 2,
                       .capacity = 5,
                       .hidden = 8,
                       .drop = DSC_MOE_DROP_LATEST,
                       .dtype = DSC_DTYPE_F32};
}

int moe_check_text(rank_t* self, const char* expected) {
  if (strstr(dsc_last_error_message(), expected) != NULL) return 0;
  FAIL(self, "the message has no \"%s\": %s", expected, dsc_last_error_message());
}
