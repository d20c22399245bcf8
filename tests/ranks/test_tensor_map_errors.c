/* Wrong arguments of mappings, and ranks that differ. Every error names what is wrong, and nothing is
 * written. */
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "map_calls.h"
#include "ranks.h"

enum { MOST_RANKS = 4, GUARD = 0x5a };

/* ---- wrong arguments: nothing happens, and the ranks can still run the same operations */

static int expect_refusal(rank_t* self, dsc_result_t code, const char* words, dsc_result_t came) {
  if (came != code || strstr(dsc_last_error_message(), words) == NULL)
    FAIL(self, "expected %s with \"%s\", got %s: %s", dsc_result_name(code), words, dsc_result_name(came),
         dsc_last_error_message());
  return 0;
}

static int odd_options_body(rank_t* self) {
  float in[64] = {0}, out[64] = {0};
  dsc_comm_t* const w = self->world;
  const size_t parts[MOST_RANKS] = {1, 2}, other[MOST_RANKS] = {2, 1};
  dsc_tensor_map_options_t odd = map_options(DSC_TENSOR_MAPPING_GATHER, 1, 8, 1);
  odd.other_parts = other;
  PASS_ON(expect_refusal(self, DSC_ERR_INVALID_ARG,
                         "options->other_parts is not NULL; expected NULL without options->parts",
                         map_step(w, &odd, FORWARD, in, out, DSC_DTYPE_F32, NULL, NULL)));
  odd.other_parts = NULL;
  odd.parts = parts;
  PASS_ON(expect_refusal(self, DSC_ERR_INVALID_ARG,
                         "options->dim is 8, expected the sum of options->parts, 3",
                         map_step(w, &odd, FORWARD, in, out, DSC_DTYPE_F32, NULL, NULL)));
  odd.dim = 3;
  odd.chunks = 2;
  PASS_ON(expect_refusal(self, DSC_ERR_INVALID_ARG, "options->chunks is 2, expected 1 with options->parts",
                         map_step(w, &odd, FORWARD, in, out, DSC_DTYPE_F32, NULL, NULL)));
  odd.struct_size = 3;
  PASS_ON(expect_refusal(self, DSC_ERR_INVALID_ARG, "struct_size",
                         map_step(w, &odd, BACKWARD, in, out, DSC_DTYPE_F32, NULL, NULL)));
  return 0;
}

static int refusals_body(rank_t* self) {
  float in[64] = {0}, out[64] = {0};
  dsc_comm_t* const w = self->world;
  const size_t parts[MOST_RANKS] = {1, 2}, other[MOST_RANKS] = {2, 1};
  dsc_work_t* work = NULL;
#define REFUSED(code, words, ...) PASS_ON(expect_refusal(self, code, words, __VA_ARGS__))
#define MAP(mapping, direction, in, out, outer, dim, inner) \
  map_even(w, mapping, direction, in, out, outer, dim, inner, DSC_DTYPE_F32, NULL, NULL)
  REFUSED(DSC_ERR_INVALID_ARG, "mapping is 0, expected 1 (copy) to 9", MAP(0, 1, in, out, 1, 8, 1));
  REFUSED(DSC_ERR_INVALID_ARG, "mapping is 10, expected", MAP(10, 1, in, out, 1, 8, 1));
  REFUSED(DSC_ERR_INVALID_ARG, "options is NULL",
          dsc_tensor_map_forward(w, NULL, in, out, DSC_DTYPE_F32, NULL, NULL));
  REFUSED(DSC_ERR_INVALID_ARG, "dim is 7, expected a multiple of 2",
          MAP(DSC_TENSOR_MAPPING_GATHER, 1, in, out, 1, 7, 1));
  REFUSED(DSC_ERR_INVALID_ARG, "outer is 3, expected a multiple of 2",
          MAP(DSC_TENSOR_MAPPING_SEQUENCE_TO_HIDDEN, 1, in, out, 3, 8, 1));
  REFUSED(DSC_ERR_INVALID_ARG, "send is NULL, expected 16 bytes",
          MAP(DSC_TENSOR_MAPPING_GATHER, 1, NULL, out, 1, 8, 1));
  REFUSED(DSC_ERR_INVALID_ARG, "recv is NULL, expected 32 bytes",
          MAP(DSC_TENSOR_MAPPING_GATHER, 1, in, NULL, 1, 8, 1));
  REFUSED(DSC_ERR_INVALID_ARG,
          "send and recv overlap; expected separate buffers, or in place: send == recv + own part",
          MAP(DSC_TENSOR_MAPPING_GATHER, 1, out + 1, out, 1, 8, 1));
  REFUSED(DSC_ERR_INVALID_ARG, "send and recv overlap; expected separate buffers",
          MAP(DSC_TENSOR_MAPPING_GATHER, 1, out + 4 * self->rank, out, 2, 8, 1));
  REFUSED(DSC_ERR_INVALID_ARG, "or in place: recv == send",
          MAP(DSC_TENSOR_MAPPING_REDUCE, 1, out + 1, out, 1, 8, 1));
  REFUSED(DSC_ERR_INVALID_ARG, "chunks is 0, expected 1 or more",
          map_chunk(w, DSC_TENSOR_MAPPING_GATHER, 1, in, out, 1, 8, 1, 0, 0, DSC_DTYPE_F32, NULL, NULL));
  REFUSED(DSC_ERR_INVALID_ARG, "chunk is 3, expected 0 to 2",
          map_chunk(w, DSC_TENSOR_MAPPING_GATHER, 1, in, out, 1, 8, 1, 3, 3, DSC_DTYPE_F32, NULL, NULL));
  REFUSED(DSC_ERR_INVALID_ARG, "chunks is 2, expected 1: mapping 7 exchanges parts between pairs of ranks",
          map_chunk(w, DSC_TENSOR_MAPPING_ALL_TO_ALL, 1, in, out, 1, 8, 1, 0, 2, DSC_DTYPE_F32, NULL, NULL));
  REFUSED(DSC_ERR_OVERFLOW, "elements do not fit",
          MAP(DSC_TENSOR_MAPPING_REDUCE, 1, in, out, SIZE_MAX / 2, 8, 1));
  REFUSED(DSC_ERR_INVALID_ARG, "dtype is 99",
          map_even(w, DSC_TENSOR_MAPPING_COPY, 1, in, out, 1, 8, 1, 99, NULL, NULL));
  REFUSED(DSC_ERR_INVALID_ARG, "other_parts is NULL",
          map_parts(w, DSC_TENSOR_MAPPING_SEQUENCE_TO_HIDDEN, 1, in, out, 1, parts, NULL, 1, DSC_DTYPE_F32,
                    NULL, NULL));
  REFUSED(DSC_ERR_INVALID_ARG, "other_parts is not NULL; expected NULL for mapping 4",
          map_parts(w, DSC_TENSOR_MAPPING_GATHER, 1, in, out, 1, parts, other, 1, DSC_DTYPE_F32, NULL, NULL));
  REFUSED(
      DSC_ERR_INVALID_ARG, "expected the same size: both are of the part that this rank sends to itself",
      map_parts(w, DSC_TENSOR_MAPPING_ALL_TO_ALL, 1, in, out, 1, parts, other, 1, DSC_DTYPE_F32, NULL, NULL));
  REFUSED(DSC_ERR_INVALID_ARG, "or in place: recv == send",
          MAP(DSC_TENSOR_MAPPING_COPY, 2, in, in + 1, 1, 8, 1));
  REFUSED(DSC_ERR_INVALID_ARG, "or in place: recv == send",
          MAP(DSC_TENSOR_MAPPING_COPY, 1, in, in + 4, 1, 8, 1));
  REFUSED(DSC_ERR_INVALID_ARG, "or in place: recv == send",
          MAP(DSC_TENSOR_MAPPING_REDUCE, 1, in, in + 4, 1, 8, 1));
  CHECK_OK(self, dsc_batch_begin(w));
  REFUSED(DSC_ERR_STATE, "a batch is open, and this step only copies",
          MAP(DSC_TENSOR_MAPPING_SCATTER, 1, in, out, 1, 8, 1));
  REFUSED(DSC_ERR_INVALID_ARG, "work is not NULL, expected NULL in a batch",
          map_even(w, DSC_TENSOR_MAPPING_COPY, 1, in, out, 1, 8, 1, DSC_DTYPE_F32, NULL, &work));
  CHECK_OK(self, MAP(DSC_TENSOR_MAPPING_GATHER, 1, in, out, 2, 8, 1));
  CHECK_OK(self, dsc_batch_end(w, NULL, NULL));
#undef MAP
#undef REFUSED
  return 0;
}

static void wrong_arguments_are_named(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, refusals_body, NULL), 0);
  assert_int_equal(run_ranks(2, odd_options_body, NULL), 0);
}

/* ---- ranks that differ */

static int shapes_differ_body(rank_t* self) {
  float in[48] = {0}, out[48];
  memset(out, GUARD, sizeof out);
  const size_t outer = self->rank == 1 ? 2 : 4, dim = self->rank == 1 ? 8 : 4;
  PASS_ON(expect_refusal(self, DSC_ERR_MISMATCH, "all_gather(f32, 8, [2, 8, 1])",
                         map_even(self->world, DSC_TENSOR_MAPPING_GATHER, FORWARD, in, out, outer, dim, 1,
                                  DSC_DTYPE_F32, NULL, NULL)));
  CHECK(self, strstr(dsc_last_error_message(), "[4, 4, 1]") != NULL);
  for (size_t i = 0; i < sizeof out; ++i) CHECK(self, ((const char*)out)[i] == GUARD);
  return 0;
}

static int parts_differ_body(rank_t* self) {
  float in[48] = {0}, out[48];
  memset(out, GUARD, sizeof out);
  const size_t usual[] = {1, 3}, odd[] = {2, 2};
  PASS_ON(expect_refusal(self, DSC_ERR_MISMATCH, "[2, 1+3, 1]",
                         map_parts(self->world, DSC_TENSOR_MAPPING_GATHER, FORWARD, in, out, 2,
                                   self->rank == 1 ? odd : usual, NULL, 1, DSC_DTYPE_F32, NULL, NULL)));
  CHECK(self, strstr(dsc_last_error_message(), "[2, 2+2, 1]") != NULL);
  for (size_t i = 0; i < sizeof out; ++i) CHECK(self, ((const char*)out)[i] == GUARD);
  return 0;
}

static int other_chunk_body(rank_t* self) {
  float part[8] = {0}, whole[16];
  memset(whole, GUARD, sizeof whole);
  PASS_ON(expect_refusal(self, DSC_ERR_MISMATCH, "[1, 16, 1], chunk 1 of 2",
                         map_chunk(self->world, DSC_TENSOR_MAPPING_GATHER, FORWARD, part, whole, 1, 16, 1,
                                   (size_t)self->rank, 2, DSC_DTYPE_F32, NULL, NULL)));
  for (size_t i = 0; i < sizeof whole; ++i) CHECK(self, ((const char*)whole)[i] == GUARD);
  return 0;
}

/* Exchanges of equal size in opposite directions, and chunks of the same length at different positions. */
static int other_step_body(rank_t* self) {
  float in[8] = {0}, out[8];
  memset(out, GUARD, sizeof out);
  const direction_t direction = self->rank == 1 ? BACKWARD : FORWARD;
  PASS_ON(expect_refusal(self, DSC_ERR_MISMATCH, "[4, 4, 1], to hidden",
                         map_even(self->world, DSC_TENSOR_MAPPING_SEQUENCE_TO_HIDDEN, direction, in, out, 4,
                                  4, 1, DSC_DTYPE_F32, NULL, NULL)));
  for (size_t i = 0; i < sizeof out; ++i) CHECK(self, ((const char*)out)[i] == GUARD);
  return 0;
}

static int other_chunks_body(rank_t* self) {
  float in[8] = {0}, out[16];
  memset(out, GUARD, sizeof out);
  PASS_ON(expect_refusal(self, DSC_ERR_MISMATCH, "chunk 1 of 4",
                         map_chunk(self->world, DSC_TENSOR_MAPPING_GATHER, FORWARD, in, out, 1, 8, 1, 1,
                                   self->rank == 1 ? 4 : 3, DSC_DTYPE_F32, NULL, NULL)));
  for (size_t i = 0; i < sizeof out; ++i) CHECK(self, ((const char*)out)[i] == GUARD);
  return 0;
}

/* Lists that do not fit into the message are cut, but the rank that differs is still named. */
static int long_lists_body(rank_t* self) {
  enum { PART = 10000000 };
  const size_t shift = self->rank == 2 ? 1 : 0,
               parts[] = {PART, PART, PART, PART, PART + shift, PART - shift};
  char* in = calloc(1, PART + 1);
  char* out = calloc(6, PART);
  PASS_ON(expect_refusal(self, DSC_ERR_MISMATCH,
                         "10000000+...); rank 2 differs in arguments that are not shown",
                         map_parts(self->world, DSC_TENSOR_MAPPING_GATHER, FORWARD, in, out, 1, parts, NULL,
                                   1, DSC_DTYPE_U8, NULL, NULL)));
  free(in), free(out);
  return 0;
}

static void other_shapes_are_a_mismatch(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, other_chunk_body, NULL), 0);
  assert_int_equal(run_ranks(2, other_step_body, NULL), 0);
  assert_int_equal(run_ranks(2, other_chunks_body, NULL), 0);
  if (!ranks_are_on_several_hosts()) assert_int_equal(run_ranks(6, long_lists_body, NULL), 0);
  assert_int_equal(run_ranks(2, shapes_differ_body, NULL), 0);
  assert_int_equal(run_ranks(2, parts_differ_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_arguments_are_named),
      cmocka_unit_test(other_shapes_are_a_mismatch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
