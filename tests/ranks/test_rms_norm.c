/* An all-reduce with a residual and RMSNorm, compared with the same computation in f64. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "ranks.h"
#include "reference.h"

static const dsc_dtype_t dtypes[] = {DSC_DTYPE_F32, DSC_DTYPE_F64, DSC_DTYPE_BF16, DSC_DTYPE_F16};

/* Arrays that are equal on all ranks, except for the input, and room for the results. */
typedef struct problem {
  size_t tokens, hidden, bytes;
  dsc_dtype_t dtype;
  double epsilon;
  bool adds, weighs;
  char *input, *residual, *weight; /* weight has room for a whole row */
  char *kept, *output;
  char* sum; /* as dsc_all_reduce() computes it */
} problem_t;

/* Stores a number that all types can represent exactly. */
static void set_number(void* numbers, size_t i, dsc_dtype_t dtype, double value) {
  const float narrow = (float)value;
  uint32_t bits = 0;
  memcpy(&bits, &narrow, sizeof bits);
  if (dtype == DSC_DTYPE_F64) ((double*)numbers)[i] = value;
  if (dtype == DSC_DTYPE_F32) ((float*)numbers)[i] = narrow;
  if (dtype == DSC_DTYPE_BF16) ((uint16_t*)numbers)[i] = (uint16_t)(bits >> 16);
  if (dtype == DSC_DTYPE_F16)
    ((uint16_t*)numbers)[i] =
        (uint16_t)(bits == 0 ? 0
                             : bits >> 31 << 15 | ((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 0x3ff));
}

/* Makes numbers of -4 to 4 with seven bits, whose sums are rounded in 16-bit types. */
static char* make_numbers(size_t count, dsc_dtype_t dtype, uint64_t seed) {
  char* numbers = calloc(count + 1, sizeof(double));
  for (size_t i = 0; i < count; ++i) {
    const double steps = (double)(next_random(&seed) % 128) / 128 + 1;
    const double value = ldexp(next_random(&seed) % 2 ? steps : -steps, (int)(next_random(&seed) % 5) - 3);
    set_number(numbers, i, dtype, value);
  }
  return numbers;
}

static int problem_open(problem_t* it, rank_t* self, size_t tokens, size_t hidden, dsc_dtype_t dtype) {
  const size_t count = tokens * hidden;
  const uint64_t seed = 31 * hidden + 7 * tokens + (uint64_t)dtype;
  *it = (problem_t){
      tokens, hidden, count * element_bytes(dtype), dtype, 1e-5, true, true, NULL, NULL, NULL, NULL,
      NULL,   NULL};
  it->input = make_numbers(count, dtype, 1000 * (uint64_t)(self->rank + 1) + seed);
  it->residual = make_numbers(count, dtype, seed);
  it->weight = make_numbers(hidden, dtype, seed + 1);
  it->kept = calloc(count + 1, sizeof(double));
  it->output = calloc(count + 1, sizeof(double));
  it->sum = calloc(count + 1, sizeof(double));
  CHECK_OK(self, dsc_all_reduce(self->world, it->input, it->sum, count, dtype, DSC_OP_SUM, NULL, NULL));
  return 0;
}

static void problem_close(problem_t* it) {
  char* all[] = {it->input, it->residual, it->weight, it->kept, it->output, it->sum};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) free(all[i]);
}

static dsc_result_t run_on(const problem_t* it, dsc_comm_t* comm, const void* input, const void* residual,
                           void* kept, void* output) {
  return dsc_all_reduce_rms_norm(comm, input, it->adds ? residual : NULL, it->weighs ? it->weight : NULL,
                                 it->tokens, it->hidden, it->dtype, it->epsilon, kept, output);
}

static dsc_result_t run(const problem_t* it, dsc_comm_t* comm) {
  return run_on(it, comm, it->input, it->residual, it->kept, it->output);
}

/* Returns half a unit in the last place of 1. */
static double half_unit(dsc_dtype_t dtype) {
  return dtype == DSC_DTYPE_F64    ? DBL_EPSILON / 2
         : dtype == DSC_DTYPE_BF16 ? 0x1p-8
         : dtype == DSC_DTYPE_F16  ? 0x1p-11
                                   : FLT_EPSILON / 2;
}

static int check_near(rank_t* self, const problem_t* it, const char* what, size_t i, const char* numbers,
                      double expected, double relative) {
  /* for numbers so small that f16 has fewer digits */
  const double least = it->dtype == DSC_DTYPE_F16 ? 0x1p-25 : 0;
  const double found = load_real(numbers, i, it->dtype);
  if (fabs(found - expected) <= relative * fabs(expected) + least) return 0;
  FAIL(self, "%s %zu is %.17g, expected %.17g, at most %g of it away", what, i, found, expected, relative);
}

/* The kept row is the sum of dsc_all_reduce()'s result and the residual, rounded once. The output may differ
 * from RMSNorm of the kept row in f64 by rounding errors: hidden / 64 + 6 additions per sum of squares, which
 * count by half, a factor, and two products. */
static int check_row(rank_t* self, const problem_t* it, size_t t) {
  const bool is_f64 = it->dtype == DSC_DTYPE_F64;
  const double computed = is_f64 ? DBL_EPSILON / 2 : FLT_EPSILON / 2;
  const double bound = half_unit(it->dtype) * 1.001 + computed * ((double)it->hidden / 128 + 8);
  double squares = 0;
  for (size_t j = 0, i = t * it->hidden; j < it->hidden; ++j, ++i) {
    const double added = it->adds ? load_real(it->residual, i, it->dtype) : 0;
    const double exact = load_real(it->sum, i, it->dtype) + added, kept = load_real(it->kept, i, it->dtype);
    PASS_ON(check_near(self, it, "kept", i, it->kept, exact, it->adds ? half_unit(it->dtype) : 0));
    squares += kept * kept;
  }
  const double factor = 1 / sqrt(squares / (double)it->hidden + it->epsilon);
  for (size_t j = 0, i = t * it->hidden; j < it->hidden; ++j, ++i) {
    const double weight = it->weighs ? load_real(it->weight, j, it->dtype) : 1;
    const double expected = load_real(it->kept, i, it->dtype) * factor * weight;
    PASS_ON(check_near(self, it, "output", i, it->output, expected, bound));
  }
  return 0;
}

static int check_equal_on_ranks(rank_t* self, const char* numbers, size_t bytes) {
  char* all = calloc(bytes * (size_t)self->size + 1, 1);
  const dsc_result_t result = dsc_all_gather(self->world, numbers, all, bytes, DSC_DTYPE_U8, NULL, NULL);
  bool is_equal = result == DSC_OK;
  for (int32_t r = 0; r < self->size; ++r)
    if (memcmp(all + (size_t)r * bytes, numbers, bytes) != 0) is_equal = false;
  free(all);
  CHECK(self, is_equal);
  return 0;
}

static int check_problem(rank_t* self, problem_t* it) {
  CHECK_OK(self, run(it, self->world));
  for (size_t t = 0; t < it->tokens; ++t) PASS_ON(check_row(self, it, t));
  PASS_ON(check_equal_on_ranks(self, it->kept, it->bytes));
  return check_equal_on_ranks(self, it->output, it->bytes);
}

static int dense_body(rank_t* self) {
  static const size_t hiddens[] = {1, 2, 63, 64, 65, 100, 1000, 4097};
  for (size_t h = 0; h < sizeof hiddens / sizeof *hiddens; ++h)
    for (size_t d = 0; d < 4; ++d)
      for (int with = 0; with < 4; ++with) {
        problem_t it;
        PASS_ON(problem_open(&it, self, 1 + h % 3, hiddens[h], dtypes[d]));
        it.adds = with & 1;
        it.weighs = with & 2;
        it.epsilon = with == 3 ? 0.5 : 1e-5;
        PASS_ON(check_problem(self, &it));
        problem_close(&it);
      }
  return 0;
}

static void as_in_f64(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, dense_body, NULL), 0);
}

/* A call with rows of several blocks has the bits of calls with one row. */
static int blocks_body(rank_t* self) {
  for (size_t d = 0; d < 4; ++d) {
    problem_t it;
    PASS_ON(problem_open(&it, self, 300, 2100, dtypes[d]));
    CHECK(self, it.bytes > 1 << 20); /* more than one block */
    CHECK_OK(self, run(&it, self->world));
    const size_t row = it.bytes / it.tokens;
    char* single = calloc(2, row);
    problem_t one = it;
    one.tokens = 1;
    const size_t step = test_scale() > 1 ? 37 : 7;
    for (size_t at = 0; at < it.bytes; at += step * row) {
      CHECK_OK(self, run_on(&one, self->world, it.input + at, it.residual + at, single, single + row));
      CHECK(self, memcmp(single, it.kept + at, row) == 0);
      CHECK(self, memcmp(single + row, it.output + at, row) == 0);
    }
    free(single);
    problem_close(&it);
  }
  return 0;
}

static void any_blocks(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, blocks_body, NULL), 0);
}

/* The output or the kept rows may use the memory of the input, and the kept rows that of the residual. */
static int in_place_body(rank_t* self) {
  for (int form = 0; form < 5; ++form) {
    problem_t it;
    PASS_ON(problem_open(&it, self, 300, 999, dtypes[form % 4]));
    CHECK_OK(self, run(&it, self->world));
    char *input = calloc(1, it.bytes), *residual = calloc(1, it.bytes), *other = calloc(1, it.bytes);
    memcpy(input, it.input, it.bytes);
    memcpy(residual, it.residual, it.bytes);
    char* const kept = form == 0 || form == 1 ? residual : form == 2 ? input : form == 3 ? NULL : other;
    char* const output = form == 0 || form == 3 || form == 4 ? input : other;
    CHECK_OK(self, run_on(&it, self->world, input, residual, kept, output));
    CHECK(self, kept == NULL || memcmp(kept, it.kept, it.bytes) == 0);
    CHECK(self, memcmp(output, it.output, it.bytes) == 0);
    CHECK(self, output == input || kept == input || memcmp(input, it.input, it.bytes) == 0);
    CHECK(self, kept == residual || memcmp(residual, it.residual, it.bytes) == 0);
    char* all[] = {input, residual, other};
    for (size_t i = 0; i < 3; ++i) free(all[i]);
    problem_close(&it);
  }
  return 0;
}

static void in_place(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, in_place_body, NULL), 0);
}

/* With DSC_NONFINITE_CHECK_FAIL the call fails and names the element, but computes the same rows. */
static int check_failure(rank_t* self, const problem_t* it, size_t first) {
  dsc_comm_t* group = NULL;
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  CHECK_OK(self, dsc_comm_set_nonfinite_check(group, DSC_NONFINITE_CHECK_FAIL));
  char* again = calloc(1, it->bytes);
  const dsc_result_t result = run_on(it, group, it->input, NULL, NULL, again);
  const int differs = memcmp(again, it->output, it->bytes);
  free(again);
  CHECK(self, result == DSC_ERR_NONFINITE && differs == 0);
  dsc_error_info_t info = {.struct_size = sizeof info};
  CHECK_OK(self, dsc_last_error_info(&info));
  CHECK(self, info.index == first);
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

/* Rows of zeros give zeros. NaN and infinity affect only their own row. */
static int special_body(rank_t* self) {
  for (size_t d = 0; d < 4; ++d) {
    problem_t it;
    PASS_ON(problem_open(&it, self, 4, 70, dtypes[d]));
    it.adds = it.weighs = false;
    memset(it.input + it.bytes / 4, 0, it.bytes / 4);
    const float bad[] = {INFINITY, NAN};
    for (size_t i = 0; i < 2; ++i) {
      uint32_t bits = 0;
      memcpy(&bits, &bad[i], sizeof bits);
      const size_t at = (2 + i) * it.hidden + 69;
      if (it.dtype == DSC_DTYPE_F64) ((double*)it.input)[at] = (double)bad[i];
      if (it.dtype == DSC_DTYPE_F32) ((float*)it.input)[at] = bad[i];
      if (it.dtype == DSC_DTYPE_BF16) ((uint16_t*)it.input)[at] = (uint16_t)(bits >> 16);
      if (it.dtype == DSC_DTYPE_F16) ((uint16_t*)it.input)[at] = i == 0 ? 0x7c00 : 0x7e00;
    }
    it.epsilon = it.dtype == DSC_DTYPE_F64 ? DBL_MIN : (double)FLT_MIN;
    CHECK_OK(self, run(&it, self->world));
    for (size_t j = 0; j < it.hidden; ++j) {
      CHECK(self, isfinite(load_real(it.output, j, it.dtype)));
      CHECK(self, load_real(it.output, it.hidden + j, it.dtype) == 0);
      CHECK(self, j == 69 ? isnan(load_real(it.output, 2 * it.hidden + j, it.dtype))
                          : load_real(it.output, 2 * it.hidden + j, it.dtype) == 0);
      CHECK(self, isnan(load_real(it.output, 3 * it.hidden + j, it.dtype)));
    }
    if (!ranks_are_on_several_hosts()) PASS_ON(check_failure(self, &it, 2 * it.hidden + 69));
    problem_close(&it);
  }
  return 0;
}

static void special_numbers(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, special_body, NULL), 0);
}

/* If one rank passes different arguments, all ranks get MISMATCH, and nothing is written. */
static int disagreement(rank_t* self, int kind) {
  static const char* const texts[] = {
      "eps 1e-05 4x24 residual weight", "eps 1e-05 3x24 residual weight", "eps 1e-05 4x20 residual weight",
      "all_reduce(sum, bf16, ",         "eps 9.999999747378752e-06 4x24", "eps 1e-05 4x24 weight",
      "eps 1e-05 4x24 residual",        "eps 1e-05 8x12 residual weight", "eps 1e-05 0x24 residual weight"};
  problem_t it;
  dsc_comm_t* group = NULL;
  PASS_ON(problem_open(&it, self, 4, 24, DSC_DTYPE_F32));
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  if (self->rank == 1) {
    if (kind == 1) it.tokens = 3;
    if (kind == 2) it.hidden = 20;
    if (kind == 3) it.dtype = DSC_DTYPE_BF16;
    if (kind == 4) it.epsilon = (double)1e-5f;
    if (kind == 5) it.adds = false;
    if (kind == 6) it.weighs = false;
    if (kind == 7) it.tokens = 8, it.hidden = 12;
    if (kind == 8) it.tokens = 0;
  }
  memset(it.kept, 0x55, it.bytes);
  memset(it.output, 0x55, it.bytes);
  CHECK_RESULT(self, DSC_ERR_MISMATCH, run(&it, group));
  const char* text = dsc_last_error_message();
  if (strstr(text, "dsc_all_reduce_rms_norm: ") != text || !strstr(text, texts[0]) ||
      !strstr(text, texts[kind]))
    FAIL(self, "the message does not show \"%s\" and \"%s\": %s", texts[0], texts[kind], text);
  for (size_t i = 0; i < it.bytes; ++i) CHECK(self, it.kept[i] == 0x55 && it.output[i] == 0x55);
  CHECK_OK(self, dsc_comm_destroy(group));
  problem_close(&it);
  return 0;
}

static int disagreements_body(rank_t* self) {
  for (int kind = 1; kind < 9; ++kind) PASS_ON(disagreement(self, kind));
  return 0;
}

static void ranks_disagree(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 4; ++size) assert_int_equal(run_ranks(size, disagreements_body, NULL), 0);
}

/* Without rows no memory is accessed, but a rank that calls something else is still a mismatch. */
static int no_tokens_body(rank_t* self) {
  CHECK_OK(self,
           dsc_all_reduce_rms_norm(self->world, NULL, NULL, NULL, 0, 8, DSC_DTYPE_F16, 1e-5, NULL, NULL));
  return 0;
}

static void no_tokens(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, no_tokens_body, NULL), 0);
}

static int check_text(rank_t* self, const char* expected) {
  if (strstr(dsc_last_error_message(), expected) != NULL) return 0;
  FAIL(self, "the message has no \"%s\": %s", expected, dsc_last_error_message());
}

/* A wrong argument is refused before other ranks are involved, so the same communicator still works. */
static int refusals_body(rank_t* self) {
  problem_t it;
  PASS_ON(problem_open(&it, self, 4, 24, DSC_DTYPE_F32));
  char *const in = it.input, *const added = it.residual, *const kept = it.kept, *const out = it.output;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, run_on(&it, self->world, in, added, kept, added));
  PASS_ON(check_text(self, "output and residual overlap, expected separate memory"));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, run_on(&it, self->world, in, added, added + 4, out));
  PASS_ON(check_text(self, "residual_out and residual overlap"));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, run_on(&it, self->world, in, added, in + 4, out));
  PASS_ON(check_text(self, "residual_out and input overlap"));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, run_on(&it, self->world, in, added, kept, in + 4));
  PASS_ON(check_text(self, "output and input overlap"));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, run_on(&it, self->world, in, added, in, in));
  PASS_ON(check_text(self, "residual_out and output overlap"));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, run_on(&it, self->world, NULL, added, kept, out));
  PASS_ON(check_text(self, "input is NULL, expected 384 bytes"));
  it.epsilon = 0;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, run(&it, self->world));
  PASS_ON(check_text(self, "epsilon is 0, expected 1.17549e-38 to 3.40282e+38"));
  it.epsilon = 1e-5;
  PASS_ON(check_problem(self, &it));
  problem_close(&it);
  return 0;
}

static void wrong_arguments(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, refusals_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_in_f64),       cmocka_unit_test(any_blocks),     cmocka_unit_test(in_place),
      cmocka_unit_test(special_numbers), cmocka_unit_test(ranks_disagree), cmocka_unit_test(no_tokens),
      cmocka_unit_test(wrong_arguments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
