/* The exchange of tokens for mixture-of-experts layers, compared with a layer that one process computes. */
#include <math.h>
#include <stdlib.h>

#include "cmocka_c.h"
#include "moe_layer.h"
#include "reference.h"

static const dsc_dtype_t dtypes[] = {DSC_DTYPE_F32, DSC_DTYPE_F64, DSC_DTYPE_BF16};

/* Runs a layer with blocking and with started calls, and with the previous call's rows in the plan's memory.
 */
static int run_layer(rank_t* self, const moe_sizes_t* sizes, uint64_t seed) {
  moe_layer_t it;
  PASS_ON(moe_layer_open(&it, self, sizes, seed));
  for (int starts = 0; starts < 2; ++starts) {
    PASS_ON(moe_forward(self, &it, starts));
    PASS_ON(moe_backward(self, &it, starts));
    PASS_ON(moe_check_layer(self, &it));
  }
  return moe_layer_close(&it, self);
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

static double total(const moe_layer_t* it) {
  double sum = 0;
  for (size_t i = 0; i < it->own->count * it->sizes.hidden; ++i)
    sum += load_real(it->out, i, DSC_DTYPE_F64) * load_real(it->gradient, i, DSC_DTYPE_F64);
  return sum;
}

/* Returns the slope of the sum of this rank's outputs when one number changes on all ranks at the same time.
 * This works because the output of a token depends on no other token. */
static int slope_by(rank_t* self, moe_layer_t* it, double* number_of, double* slope) {
  const double h = 0x1p-12, kept = number_of ? *number_of : 0;
  double sums[2];
  for (int side = 0; side < 2; ++side) {
    if (number_of) *number_of = kept + (side == 0 ? -h : h);
    PASS_ON(moe_forward(self, it, false));
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
                             .dtype = DSC_DTYPE_F64};
  moe_layer_t it;
  PASS_ON(moe_layer_open(&it, self, &sizes, 77));
  PASS_ON(moe_forward(self, &it, false));
  PASS_ON(moe_backward(self, &it, false));
  const size_t values = it.own->count * sizes.hidden, slots = it.own->count * sizes.top_k;
  for (size_t i = 0; i < (size_t)MOST_TOKENS * 5; ++i) {
    const bool is_value = i < (size_t)MOST_TOKENS * 3;
    const size_t at = is_value ? i : i - (size_t)MOST_TOKENS * 3;
    double* place = is_value ? (double*)it.own->values + at : (double*)it.weights + at;
    const bool exists = at < (is_value ? values : slots);
    double slope = 0;
    PASS_ON(slope_by(self, &it, exists ? place : NULL, &slope));
    const char* found = is_value ? it.token_gradients : it.weight_gradients;
    if (exists) PASS_ON(moe_check_near(self, "slope", i, load_real(found, at, DSC_DTYPE_F64), slope, 1e-9));
  }
  return moe_layer_close(&it, self);
}

static void gradients_are_slopes(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; size *= 2) assert_int_equal(run_ranks(size, slope_body, NULL), 0);
}

/* Checks elements that were sent as 8-bit floats, with the accuracy that the header promises. */
static int check_fp8_row(rank_t* self, moe_layer_t* it, size_t row, size_t expert, int32_t source,
                         size_t slot) {
  (void)expert;
  const size_t token = slot / it->sizes.top_k;
  for (size_t c = 0; c < it->sizes.hidden; ++c) {
    const size_t begin = c / 128 * 128,
                 end_of_block = begin + 128 < it->sizes.hidden ? begin + 128 : it->sizes.hidden;
    double most = 0x1p-100;
    for (size_t i = begin; i < end_of_block; ++i)
      most = fmax(most, fabs(moe_number(it, it->tokens[source].values, token, i)));
    const double x = moe_number(it, it->tokens[source].values, token, c),
                 y = moe_number(it, it->rows, row, c);
    const double bound = fmax(fabs(x) / 16, most / 448 / 1024) * (1 + 0x1p-20);
    const double rounding = it->sizes.dtype == DSC_DTYPE_BF16 ? fabs(y) * 0x1p-8 : fabs(y) * 0x1p-24;
    PASS_ON(moe_check_near(self, "element", c, y, x, bound + rounding));
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
    moe_layer_t it;
    PASS_ON(moe_layer_open(&it, self, &sizes, 5 + (uint64_t)kind));
    for (int32_t rank = 0; rank < self->size; ++rank) /* numbers of very different magnitudes */
      if (it.tokens[rank].count > 0 && sizes.dtype == DSC_DTYPE_F32)
        for (size_t c = 0; c < sizes.hidden; ++c)
          moe_set(sizes.dtype, it.tokens[rank].values, c, ldexp(1 + (double)c / 512, -(int)(c % 120)));
    for (int repeat = 0; repeat < 2; ++repeat) {
      CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, sizes.hidden, sizes.dtype,
                                      DSC_MOE_PAYLOAD_F8E4M3, it.rows, NULL, NULL));
      PASS_ON(moe_each_row(self, &it, check_fp8_row));
      PASS_ON(moe_forward(self, &it, false)); /* sends plain rows in between */
      PASS_ON(moe_each_row(self, &it, moe_check_row));
    }
    PASS_ON(moe_layer_close(&it, self));
  }
  return 0;
}

static void eight_bit_floats(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; size *= 2) assert_int_equal(run_ranks(size, fp8_body, NULL), 0);
}

/* Only a block that contains an infinity arrives as NaN. */
static int fp8_nonfinite_body(rank_t* self) {
  moe_layer_t it;
  moe_sizes_t sizes = moe_small_sizes();
  sizes.experts = sizes.top_k = 1;
  sizes.hidden = 256;
  PASS_ON(moe_layer_open(&it, self, &sizes, 3));
  for (size_t token = 0; token < it.own->count; ++token) {
    moe_set_number(&it, it.own->values, token, 5, token % 2 == 0 ? INFINITY : NAN);
    moe_set_number(&it, it.own->values, token, 6, 1);
  }
  CHECK_OK(self, dsc_moe_dispatch(it.plan, it.own->values, sizes.hidden, sizes.dtype, DSC_MOE_PAYLOAD_F8E4M3,
                                  it.rows, NULL, NULL));
  size_t counts[RANKS_MAX], needed = 0;
  CHECK_OK(self, dsc_moe_plan_source_rows(it.plan, counts, RANKS_MAX, &needed));
  size_t at = 0;
  for (size_t source = 0; source < needed; ++source) {
    if (sizes.padded) at = source * sizes.capacity;
    for (size_t row = 0; row < counts[source]; ++row, ++at)
      for (size_t c = 0; c < sizes.hidden; ++c)
        CHECK(self, isnan(moe_number(&it, it.rows, at, c)) == (c < 128));
  }
  return moe_layer_close(&it, self);
}

static void eight_bit_floats_of_infinity(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, fp8_nonfinite_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_in_one_process),
      cmocka_unit_test(gradients_are_slopes),
      cmocka_unit_test(eight_bit_floats),
      cmocka_unit_test(eight_bit_floats_of_infinity),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
