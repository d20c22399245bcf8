/* DSC_TUNING: every value gives the same bytes, a wrong value is an error, and the ranks must agree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "reference.h"
#include "traffic.h"

enum { MOST_BYTES = 96 * 1024 };

static const char* const extremes[] = {
    "",
    "direct_bytes=0",
    "direct_bytes=4611686018427387904",
    "direct_bytes=0,divided_bytes=0",
    "direct_bytes=0,divided_bytes=4611686018427387904",
    "direct_bytes=0,divided_bytes=4611686018427387904,stage_bytes=4096",
    "stage_bytes=4096",
    "stage_bytes=16777216",
    "stage_chunk_bytes=4096,direct_bytes=0",
    "stage_chunk_bytes=16777216,direct_bytes=0",
    "zero_copy_min_bytes=0",
    "zero_copy_min_bytes=4611686018427387904",
    "single_copy_min_bytes=0",
    "single_copy_min_bytes=0,stage_bytes=4096,zero_copy_chunk_bytes=4096",
    "single_copy_min_bytes=0,zero_copy_min_bytes=0",
    "single_copy_min_bytes=4611686018427387904",
    "zero_copy_chunk_bytes=4096",
    "zero_copy_chunk_bytes=67108864",
    "streaming_bytes=0",
    "streaming_bytes=4611686018427387904",
    "message_chunk_bytes=4096",
    "message_chunk_bytes=1048576",
    ("direct_bytes=0,stage_bytes=4096,stage_chunk_bytes=4096,zero_copy_min_bytes=0,zero_copy_chunk_bytes="
     "4096,"
     "streaming_bytes=0,message_chunk_bytes=4096"),
};

static void set_tuning(const char* text) { setenv("DSC_TUNING", text, 1); }

/* Runs the same operations for every setting and compares them with the reference, byte by byte. */
static int operations_body(rank_t* self) {
  static const dsc_dtype_t dtypes[] = {DSC_DTYPE_F32, DSC_DTYPE_BF16, DSC_DTYPE_F64, DSC_DTYPE_U8};
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, MOST_BYTES));
  uint64_t random = 7;
  const int draws = scaled_repetitions(60, 4, 10);
  for (int i = 0; i < draws; ++i) {
    operation_t it = {.op = DSC_OP_SUM};
    it.kind = (kind_t)(next_random(&random) % SEND);
    it.dtype = dtypes[next_random(&random) % 4];
    it.layout = (layout_t)(next_random(&random) % LAYOUTS);
    it.seed = next_random(&random) >> 8;
    it.root = (int32_t)(next_random(&random) % (uint64_t)self->size);
    const size_t share = kind_has_parts(it.kind) ? (size_t)self->size : 1;
    it.count = next_random(&random) % (MOST_BYTES / share / element_bytes(it.dtype));
    PASS_ON(check_operation(&arena, &it));
  }
  for (int32_t pair = 0; pair + 1 < self->size; pair += 2) {
    if (self->rank != pair && self->rank != pair + 1) continue;
    operation_t it = {.kind = self->rank == pair ? SEND : RECV, .dtype = DSC_DTYPE_F32, .seed = 3};
    it.root = self->rank == pair ? pair + 1 : pair;
    for (int turn = 0; turn < 4; ++turn) {
      it.layout = turn % 2 == 1 ? SHARED : PLAIN;
      it.count = turn < 2 ? MOST_BYTES / 4 : 0;
      PASS_ON(check_operation(&arena, &it));
    }
  }
  return arena_close(&arena);
}

static void extremes_change_no_byte(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof extremes / sizeof *extremes; ++i) {
    set_tuning(extremes[i]);
    for (int32_t size = 2; size <= 3; ++size) {
      const int failed = run_ranks(size, operations_body, NULL);
      if (failed != 0) fprintf(stderr, "with DSC_TUNING=%s\n", extremes[i]);
      assert_int_equal(failed, 0);
    }
  }
  unsetenv("DSC_TUNING");
}

static int shown_body(rank_t* self) {
  const char* expected = self->arg;
  char text[1024];
  size_t bytes = 0;
  CHECK_OK(self, dsc_comm_tuning(self->world, text, sizeof text, &bytes));
  if (strstr(text, expected) == NULL) FAIL(self, "expected %s, came %s", expected, text);
  return 0;
}

static void the_choice_is_shown_in_bytes(void** state) {
  (void)state;
  static const char* const settings[][2] = {
      {"stage_bytes=8192", ",stage_bytes=8192,"},        {"stage_bytes=8KiB", ",stage_bytes=8192,"},
      {"stage_bytes=8k", ",stage_bytes=8192,"},          {"stage_bytes=8K", ",stage_bytes=8192,"},
      {"stage_bytes=8192B", ",stage_bytes=8192,"},       {"stage_bytes=2mib", ",stage_bytes=2097152,"},
      {"stage_bytes=1M", ",stage_bytes=1048576,"},       {"direct_bytes=1g", "direct_bytes=1073741824,"},
      {"direct_bytes=2GiB", "direct_bytes=2147483648,"},
  };
  for (size_t i = 0; i < sizeof settings / sizeof *settings; ++i) {
    set_tuning(settings[i][0]);
    assert_int_equal(run_ranks(2, shown_body, settings[i][1]), 0);
  }
  unsetenv("DSC_TUNING");
}

static int refused_body(rank_t* self) {
  const char* words = self->arg;
  CHECK_RESULT(self, DSC_ERR_CONFIG, dsc_init_distributed(&self->options, &self->world));
  const char* message = dsc_last_error_message();
  if (strstr(message, words) == NULL || strstr(message, "direct_bytes") == NULL)
    FAIL(self, "expected \"%s\" and the known keys in: %s", words, message);
  return 0;
}

static void wrong_settings_are_refused(void** state) {
  (void)state;
  static const char* const wrong[][2] = {
      {"speed=1", "'speed=1' has no known key"},
      {"stage_bytes", "'stage_bytes' has no '='"},
      {"stage_bytes=", "has no valid size such as 65536, 64KiB"},
      {"stage_bytes=-1", "has no valid size"},
      {"stage_bytes=64 KiB", "has no valid size"},
      {"stage_bytes=64KB", "'stage_bytes=64KB' has no valid size"},
      {"stage_bytes=KiB", "has no valid size"},
      {"stage_bytes=1.5MiB", "has no valid size"},
      {"stage_bytes=99999999999999999999", "has no valid size"},
      {"direct_bytes=4294967297GiB", "has no valid size"},
      {"stage_bytes=1k", "is out of range"},
      {"stage_bytes=17MiB", "is out of range"},
      {"stage_bytes=4095", "is out of range"},
      {"stage_bytes=4097", "is out of range"},
      {"message_chunk_bytes=2097152", "is out of range"},
      {"direct_bytes=1,direct_bytes=1", "repeats a key"},
      {"direct_bytes=1,,", "has no '='"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    set_tuning(wrong[i][0]);
    assert_int_equal(run_without_world(1, refused_body, wrong[i][1]), 0);
  }
  unsetenv("DSC_TUNING");
}

static int differing_body(rank_t* self) {
  if (self->rank == 1) set_tuning("direct_bytes=5");
  CHECK_RESULT(self, DSC_ERR_CONFIG, dsc_init_distributed(&self->options, &self->world));
  if (strstr(dsc_last_error_message(), "DSC_TUNING") == NULL)
    FAIL(self, "expected DSC_TUNING in: %s", dsc_last_error_message());
  return 0;
}

/* Ranks that are threads share one environment. */
static void ranks_must_agree(void** state) {
  (void)state;
  if (!ranks_are_processes()) skip();
  assert_int_equal(run_without_world(3, differing_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(extremes_change_no_byte),
      cmocka_unit_test(the_choice_is_shown_in_bytes),
      cmocka_unit_test(wrong_settings_are_refused),
      cmocka_unit_test(ranks_must_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
