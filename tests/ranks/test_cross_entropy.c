/* Cross entropy of a vocabulary that is split over ranks, compared with cross entropy of the whole vocabulary
 * in f64.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "ranks.h"
#include "reference.h"

enum { MOST_TOKENS = 9, MOST_VOCAB = 4500 };

typedef dsc_vocab_cross_entropy_options_t options_t;

/* A problem that is the same on all ranks, with this rank's part and results. */
typedef struct problem {
  size_t tokens, vocab;
  dsc_dtype_t dtype;
  options_t options;
  size_t begin, count; /* the columns of this rank */
  double* whole;       /* logits of all ranks, rounded to the type */
  double* softmax;     /* computed by the reference */
  int64_t targets[MOST_TOKENS];
  double weights[MOST_TOKENS]; /* gradients of the losses */
  double expected[MOST_TOKENS];
  char* logits; /* the part of this rank */
  char* gradient;
  char loss[MOST_TOKENS * sizeof(double)];
  double state[2 * MOST_TOKENS];
} problem_t;

static bool is_f64(const problem_t* it) { return it->dtype == DSC_DTYPE_F64; }

static double real(const problem_t* it, const void* numbers, size_t i) {
  return is_f64(it) ? ((const double*)numbers)[i] : (double)((const float*)numbers)[i];
}

static void set_real(const problem_t* it, void* numbers, size_t i, double value) {
  if (is_f64(it))
    ((double*)numbers)[i] = value;
  else
    ((float*)numbers)[i] = (float)value;
}

/* Stores a number that the type can represent exactly: a small multiple of 1/8, infinity or NaN. */
static void set_logit(const problem_t* it, void* logits, size_t i, double value) {
  const float narrow = (float)value;
  uint32_t bits = 0;
  memcpy(&bits, &narrow, sizeof bits);
  uint16_t half = (uint16_t)(bits >> 16); /* bf16 */
  if (it->dtype == DSC_DTYPE_F16) {
    const uint32_t sign = bits >> 31 << 15, exponent = bits >> 23 & 255, mantissa = bits >> 13 & 0x3ff;
    half = (uint16_t)(sign | (exponent == 0     ? 0
                              : exponent == 255 ? 0x7c00 | mantissa
                                                : (exponent - 112) << 10 | mantissa));
  }
  if (it->dtype == DSC_DTYPE_F32 || is_f64(it))
    set_real(it, logits, i, value);
  else
    ((uint16_t*)logits)[i] = half;
}

static void problem_close(problem_t* it) {
  free(it->whole);
  free(it->softmax);
  free(it->logits);
  free(it->gradient);
}

/* Copies this rank's columns from the whole. */
static void cut_logits(problem_t* it) {
  for (size_t t = 0; t < it->tokens; ++t)
    for (size_t c = 0; c < it->count; ++c)
      set_logit(it, it->logits, t * it->count + c, it->whole[t * it->vocab + it->begin + c]);
}

/* Makes random logits of -8 to 8 in steps of 1/8. */
static int problem_open(problem_t* it, rank_t* self, size_t tokens, size_t vocab, dsc_dtype_t dtype) {
  memset(it, 0, sizeof *it);
  it->tokens = tokens;
  it->vocab = vocab;
  it->dtype = dtype;
  CHECK_OK(self, dsc_vocab_cross_entropy_options_init(&it->options, sizeof it->options));
  const size_t n = (size_t)self->size, r = (size_t)self->rank, longer = vocab % n;
  it->count = vocab / n + (r < longer);
  it->begin = vocab / n * r + (r < longer ? r : longer);
  it->whole = calloc(tokens * vocab + 1, sizeof(double));
  it->softmax = calloc(tokens * vocab + 1, sizeof(double));
  it->logits = calloc(tokens * it->count + 1, sizeof(double));
  it->gradient = calloc(tokens * it->count + 1, sizeof(double));
  uint64_t random = 7 * vocab + (uint64_t)dtype;
  for (size_t i = 0; i < tokens * vocab; ++i) it->whole[i] = (double)(next_random(&random) % 129) / 8 - 8;
  for (size_t t = 0; t < tokens; ++t) {
    it->targets[t] = (int64_t)(next_random(&random) % vocab);
    it->weights[t] = (double)(next_random(&random) % 17) / 4 - 2;
  }
  cut_logits(it);
  return 0;
}

static double smoothing(const problem_t* it) {
  const double vocab = (double)it->vocab;
  return it->options.label_smoothing == 0 ? 0 : it->options.label_smoothing * vocab / (vocab - 1);
}

/* Fills expected and softmax by the formula of cross_entropy.h, for the whole vocabulary. */
static double reference_row(problem_t* it, size_t t) {
  const double* x = it->whole + t * it->vocab;
  double max = -INFINITY;
  long double sum = 0, log_probabilities = 0;
  for (size_t j = 0; j < it->vocab; ++j) max = x[j] > max ? x[j] : max;
  for (size_t j = 0; j < it->vocab; ++j) sum += expl((long double)x[j] - max);
  const double lse = (double)(max + logl(sum)), s = smoothing(it);
  for (size_t j = 0; j < it->vocab; ++j) {
    it->softmax[t * it->vocab + j] = exp(x[j] - lse);
    log_probabilities += (long double)x[j] - lse;
  }
  double loss = (1 - s) * (lse - x[it->targets[t]]) + it->options.z_loss * lse * lse;
  if (s != 0) loss -= s * (double)(log_probabilities / (long double)it->vocab);
  it->expected[t] = loss;
  return lse;
}

static double expected_gradient(const problem_t* it, size_t t, size_t j, double lse) {
  const double s = smoothing(it);
  const double p = it->softmax[t * it->vocab + j] * (1 + 2 * it->options.z_loss * lse);
  return it->weights[t] * (p - (it->targets[t] == (int64_t)j ? 1 - s : 0) - s / (double)it->vocab);
}

static double unit(const problem_t* it) {
  return is_f64(it)                    ? DBL_EPSILON
         : it->dtype == DSC_DTYPE_BF16 ? 0x1p-8
         : it->dtype == DSC_DTYPE_F16  ? 0x1p-11
                                       : FLT_EPSILON;
}

static int check_near(rank_t* self, const char* what, size_t t, double found, double expected, double bound) {
  if (fabs(found - expected) <= bound) return 0;
  FAIL(self, "%s of token %zu is %.17g, expected %.17g, at most %g away", what, t, found, expected, bound);
}

/* f32 losses are rounded once. f32 sums have a relative error of about 2^-21. */
static int check_row(rank_t* self, const problem_t* it, size_t t, double lse) {
  const double accuracy = is_f64(it) ? 0x1p-48 : 0x1p-20;
  const double scale = 1 + 2 * it->options.z_loss * fabs(lse) + fabs(it->expected[t]);
  PASS_ON(check_near(self, "loss", t, real(it, it->loss, t), it->expected[t], accuracy * scale));
  for (size_t c = 0; c < it->count; ++c) {
    const double expected = expected_gradient(it, t, it->begin + c, lse);
    const double found = load_real(it->gradient, t * it->count + c, it->dtype);
    const double bound = unit(it) * fabs(expected) + 4 * accuracy * fabs(it->weights[t]) * scale +
                         0x1p-24 * (it->dtype == DSC_DTYPE_F16);
    PASS_ON(check_near(self, "gradient", t, found, expected, bound));
  }
  return 0;
}

static int check_ignored(rank_t* self, const problem_t* it, size_t t) {
  CHECK(self, real(it, it->loss, t) == 0);
  for (size_t c = 0; c < it->count; ++c)
    CHECK(self, load_real(it->gradient, t * it->count + c, it->dtype) == 0);
  return 0;
}

static dsc_result_t forward(const problem_t* it, dsc_comm_t* comm, void* loss, double* state) {
  return dsc_vocab_cross_entropy_forward(comm, it->logits, it->targets, it->tokens, it->vocab, it->dtype,
                                         &it->options, loss, state);
}

static dsc_result_t backward(const problem_t* it, dsc_comm_t* comm, const void* logits, const void* weights,
                             void* gradient) {
  return dsc_vocab_cross_entropy_backward(comm, logits, it->targets, it->tokens, it->vocab, it->dtype,
                                          &it->options, it->state, weights, gradient);
}

/* Checks that all ranks have the same bits. */
static int check_equal_on_ranks(rank_t* self, const problem_t* it) {
  char all[RANKS_MAX][sizeof it->loss];
  CHECK_OK(self, dsc_all_gather(self->world, it->loss, all, sizeof it->loss, DSC_DTYPE_U8, NULL, NULL));
  for (int32_t r = 0; r < self->size; ++r) CHECK(self, memcmp(all[r], it->loss, sizeof it->loss) == 0);
  return 0;
}

static int run_both(rank_t* self, problem_t* it) {
  char weights[MOST_TOKENS * sizeof(double)] = {0};
  for (size_t t = 0; t < it->tokens; ++t) set_real(it, weights, t, it->weights[t]);
  CHECK_OK(self, forward(it, self->world, it->loss, it->state));
  CHECK_OK(self, backward(it, self->world, it->logits, weights, it->gradient));
  /* Computed in place of the logits, the gradient has the same bits. */
  const size_t bytes = it->tokens * it->count * element_bytes(it->dtype);
  char* in_place = malloc(bytes + 1);
  memcpy(in_place, it->logits, bytes);
  const dsc_result_t result = backward(it, self->world, in_place, weights, in_place);
  const int differs = memcmp(in_place, it->gradient, bytes);
  free(in_place);
  CHECK(self, result == DSC_OK && differs == 0);
  return check_equal_on_ranks(self, it);
}

static int check_problem(rank_t* self, problem_t* it) {
  PASS_ON(run_both(self, it));
  for (size_t t = 0; t < it->tokens; ++t) {
    if (it->targets[t] == it->options.ignore_index)
      PASS_ON(check_ignored(self, it, t));
    else
      PASS_ON(check_row(self, it, t, reference_row(it, t)));
  }
  return 0;
}

static const dsc_dtype_t dtypes[] = {DSC_DTYPE_F32, DSC_DTYPE_F64, DSC_DTYPE_BF16, DSC_DTYPE_F16};

/* Tests no options and all combinations of options. A target inside the vocabulary may be ignored, too. */
static int check_all_options(rank_t* self, problem_t* it) {
  for (int with = 0; with < 8; ++with) {
    const int64_t ignored = with % 3 == 0 ? -100 : it->targets[it->tokens / 2];
    it->options.label_smoothing = with & 1 && it->vocab > 1 ? 0.1 : 0;
    it->options.z_loss = with & 2 ? 1e-2 : 0;
    it->options.ignore_index = with & 4 ? ignored : INT64_MIN;
    const int64_t kept = it->targets[0];
    if (with & 4) it->targets[0] = ignored;
    PASS_ON(check_problem(self, it));
    it->targets[0] = kept;
  }
  return 0;
}

static int dense_body(rank_t* self) {
  /* fewer words than ranks, odd numbers of words, and sizes near a block of 2048 */
  static const size_t vocabs[] = {1, 2, 3, 7, 16, 17, 64, 1000, 2048, MOST_VOCAB};
  for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v += test_scale())
    for (size_t d = 0; d < 4; ++d) {
      problem_t it;
      PASS_ON(problem_open(&it, self, 1 + v % MOST_TOKENS, vocabs[v], dtypes[d]));
      PASS_ON(check_all_options(self, &it));
      problem_close(&it);
    }
  return 0;
}

static void as_on_one_rank(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, dense_body, NULL), 0);
}

static double total_loss(const problem_t* it) {
  double total = 0;
  for (size_t t = 0; t < it->tokens; ++t) total += it->weights[t] * real(it, it->loss, t);
  return total;
}

/* The gradient equals the slope of the losses by central differences, up to an error of about h^2. */
static int slope_body(rank_t* self) {
  const double h = 0x1p-14;
  problem_t it;
  PASS_ON(problem_open(&it, self, 3, 11, DSC_DTYPE_F64));
  it.options.label_smoothing = 0.2;
  it.options.z_loss = 0.01;
  PASS_ON(run_both(self, &it));
  for (size_t i = 0; i < it.tokens * it.vocab; ++i) {
    double change[2];
    for (int side = 0; side < 2; ++side) {
      const double kept = it.whole[i];
      it.whole[i] += side == 0 ? -h : h;
      cut_logits(&it);
      CHECK_OK(self, forward(&it, self->world, it.loss, NULL));
      change[side] = total_loss(&it);
      it.whole[i] = kept;
    }
    const size_t column = i % it.vocab - it.begin;
    if (column >= it.count) continue;
    const double found = load_real(it.gradient, i / it.vocab * it.count + column, it.dtype);
    PASS_ON(check_near(self, "slope", i / it.vocab, found, (change[1] - change[0]) / (2 * h), 1e-7));
  }
  problem_close(&it);
  return 0;
}

static void gradients_are_slopes(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; size *= 2) assert_int_equal(run_ranks(size, slope_body, NULL), 0);
}

/* Masked words have probability 0: single words, and all words of rank 0. */
static int masks_body(rank_t* self) {
  for (size_t d = 0; d < 4; ++d) {
    problem_t it;
    PASS_ON(problem_open(&it, self, 2, 40, dtypes[d]));
    const size_t first_of_second = self->size == 1 ? 3 : 40 / (size_t)self->size;
    for (size_t j = 0; j < first_of_second; ++j) it.whole[j] = -INFINITY;
    it.whole[it.vocab + 39] = -INFINITY;
    it.targets[0] = 39;
    it.targets[1] = 0;
    cut_logits(&it);
    PASS_ON(check_problem(self, &it));
    it.targets[1] = 39; /* the target itself is masked */
    CHECK_OK(self, forward(&it, self->world, it.loss, it.state));
    CHECK(self, real(&it, it.loss, 1) == INFINITY);
    CHECK_OK(self, backward(&it, self->world, it.logits, NULL, it.gradient));
    if (it.begin + it.count == it.vocab)
      CHECK(self, load_real(it.gradient, 2 * it.count - 1, it.dtype) == -1);
    problem_close(&it);
  }
  return 0;
}

static void words_are_masked(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; size *= 2) assert_int_equal(run_ranks(size, masks_body, NULL), 0);
}

/* A token with NaN, infinity or only masked words becomes NaN unless it is ignored. Other tokens do not. */
static int nonfinite_body(rank_t* self) {
  for (size_t d = 0; d < 4; ++d) {
    problem_t it;
    PASS_ON(problem_open(&it, self, 5, 50, dtypes[d]));
    it.whole[1 * it.vocab + 49] = NAN;
    it.whole[2 * it.vocab] = INFINITY;
    for (size_t j = 0; j < it.vocab; ++j) it.whole[3 * it.vocab + j] = -INFINITY;
    it.whole[4 * it.vocab + 7] = NAN;
    it.targets[4] = it.options.ignore_index = -1;
    cut_logits(&it);
    for (size_t t = 0; t < it.tokens; ++t) it.weights[t] = 1;
    CHECK_OK(self, forward(&it, self->world, it.loss, it.state));
    CHECK_OK(self, backward(&it, self->world, it.logits, NULL, it.gradient));
    PASS_ON(check_row(self, &it, 0, reference_row(&it, 0)));
    PASS_ON(check_ignored(self, &it, 4));
    for (size_t t = 1; t < 4; ++t) {
      CHECK(self, isnan(real(&it, it.loss, t)));
      for (size_t c = 0; c < it.count; ++c)
        CHECK(self, isnan(load_real(it.gradient, t * it.count + c, it.dtype)));
    }
    problem_close(&it);
  }
  return 0;
}

static void nonfinite_tokens(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; size *= 2) assert_int_equal(run_ranks(size, nonfinite_body, NULL), 0);
}

/* Exponentials of large logits do not overflow. */
static int large_body(rank_t* self) {
  problem_t it;
  PASS_ON(problem_open(&it, self, 4, 33, DSC_DTYPE_F32));
  for (size_t i = 0; i < it.tokens * it.vocab; ++i)
    it.whole[i] = it.whole[i] * 0x1p14 + (i % 2 == 0 ? 1e6 : -1e6);
  for (size_t i = 0; i < it.tokens * it.vocab; ++i) it.whole[i] = (double)(float)it.whole[i];
  cut_logits(&it);
  PASS_ON(check_problem(self, &it));
  problem_close(&it);
  return 0;
}

static void large_logits(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; size *= 2) assert_int_equal(run_ranks(size, large_body, NULL), 0);
}

static int no_tokens_body(rank_t* self) {
  CHECK_OK(self,
           dsc_vocab_cross_entropy_forward(self->world, NULL, NULL, 0, 10, DSC_DTYPE_F32, NULL, NULL, NULL));
  CHECK_OK(self, dsc_vocab_cross_entropy_backward(self->world, NULL, NULL, 0, 10, DSC_DTYPE_F32, NULL, NULL,
                                                  NULL, NULL));
  return 0;
}

static void no_tokens(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; size *= 2) assert_int_equal(run_ranks(size, no_tokens_body, NULL), 0);
}

/* If one rank passes different arguments, all ranks get MISMATCH, and no output is written. */
static int disagreement(rank_t* self, int kind) {
  problem_t it;
  dsc_comm_t* group = NULL;
  PASS_ON(problem_open(&it, self, 4, 24, DSC_DTYPE_F32));
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  it.targets[3] = 5;
  if (self->rank == 1) {
    if (kind == 0) it.targets[3] = 6;
    if (kind == 1) it.options.ignore_index = -100;
    if (kind == 2) it.options.label_smoothing = 0.1;
    if (kind == 3) it.options.z_loss = 1e-4;
    if (kind == 4) it.tokens = 3;
    if (kind == 5) it.dtype = DSC_DTYPE_BF16;
    if (kind == 6) it.vocab = 23;
  }
  memset(it.loss, 0x55, sizeof it.loss);
  it.state[0] = 123;
  CHECK_RESULT(self, DSC_ERR_MISMATCH, forward(&it, group, it.loss, it.state));
  const char* text = dsc_last_error_message();
  CHECK(self, strstr(text, "dsc_vocab_cross_entropy_forward: ") == text);
  CHECK(self, strstr(text, "rank 1: all_reduce(max, f64, ") != NULL);
  CHECK(self, strstr(text, kind == 6 ? "vocab 23, targets " : "vocab 24, targets ") != NULL);
  CHECK(self, it.loss[0] == 0x55 && it.state[0] == 123);
  CHECK_OK(self, dsc_comm_destroy(group));
  problem_close(&it);
  return 0;
}

static int disagreements_body(rank_t* self) {
  for (int kind = 0; kind < 7; ++kind) PASS_ON(disagreement(self, kind));
  return 0;
}

static void ranks_disagree(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 4; ++size) assert_int_equal(run_ranks(size, disagreements_body, NULL), 0);
}

static int check_text(rank_t* self, const char* expected) {
  if (strstr(dsc_last_error_message(), expected) != NULL) return 0;
  FAIL(self, "the message has no \"%s\": %s", expected, dsc_last_error_message());
}

/* A wrong argument is refused before other ranks are involved, so the same communicator still works. */
static int refusals_body(rank_t* self) {
  problem_t it;
  PASS_ON(problem_open(&it, self, 4, 24, DSC_DTYPE_F32));
  const int64_t kept = it.targets[2];
  it.targets[2] = 24;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, forward(&it, self->world, it.loss, it.state));
  PASS_ON(check_text(self, "targets[2] is 24, expected 0 to 23"));
  it.options.ignore_index = -100;
  it.targets[2] = -1;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, backward(&it, self->world, it.logits, NULL, it.gradient));
  PASS_ON(check_text(self, "targets[2] is -1, expected 0 to 23, or -100 (ignore_index)"));
  it.targets[2] = kept;
  it.options.label_smoothing = 1;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, forward(&it, self->world, it.loss, it.state));
  PASS_ON(check_text(self, "label_smoothing is 1, expected at least 0 and below 1"));
  it.options.label_smoothing = 0;
  it.options.z_loss = NAN;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, forward(&it, self->world, it.loss, it.state));
  PASS_ON(check_text(self, "z_loss is nan, expected a finite number of 0 or more"));
  it.options.z_loss = 0;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, backward(&it, self->world, it.logits, NULL, it.logits + 4));
  PASS_ON(check_text(self, "gradient and logits overlap, expected separate memory"));
  PASS_ON(check_problem(self, &it));
  problem_close(&it);
  return 0;
}

static void wrong_arguments(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, refusals_body, NULL), 0);
}

/* The gradients need no other rank, so they can be computed after the communicator has failed. */
static int after_failure_body(rank_t* self) {
  problem_t it;
  dsc_comm_t* group = NULL;
  PASS_ON(problem_open(&it, self, 4, 24, DSC_DTYPE_F32));
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  CHECK_OK(self, forward(&it, group, it.loss, it.state));
  PASS_ON(ranks_meet(self));
  CHECK_OK(self, dsc_comm_abort(group));
  CHECK_OK(self, backward(&it, group, it.logits, NULL, it.gradient));
  CHECK_RESULT(self, DSC_ERR_REVOKED, forward(&it, group, it.loss, it.state));
  CHECK_OK(self, dsc_comm_destroy(group));
  problem_close(&it);
  return 0;
}

static void gradients_after_a_failure(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, after_failure_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_on_one_rank),
      cmocka_unit_test(gradients_are_slopes),
      cmocka_unit_test(words_are_masked),
      cmocka_unit_test(nonfinite_tokens),
      cmocka_unit_test(large_logits),
      cmocka_unit_test(no_tokens),
      cmocka_unit_test(ranks_disagree),
      cmocka_unit_test(wrong_arguments),
      cmocka_unit_test(gradients_after_a_failure),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
