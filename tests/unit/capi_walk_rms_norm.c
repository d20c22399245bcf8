/* An all-reduce with the addition of a residual and RMSNorm. */
#include <math.h>
#include <stdint.h>

#include "capi_walk.h"

enum { TOKENS = 2, HIDDEN = 3, COUNT = TOKENS * HIDDEN };

static float input[COUNT + 1] = {3, 4, 0, 0, 0, 0}, residual[COUNT + 1], weight[HIDDEN] = {1, 2, 3};
static float kept[COUNT + 1], output[COUNT + 1];

#define MISALIGNED(array) ((void*)((uintptr_t)(array) + 1))
#define NORM(expected, input, residual, weight, kept, output)                                       \
  WALK(expected, dsc_all_reduce_rms_norm(walk_world.alone, input, residual, weight, TOKENS, HIDDEN, \
                                         DSC_DTYPE_F32, 1e-12, kept, output))
#define NORM_OF(expected, tokens, hidden, dtype, epsilon)                                                  \
  WALK(expected, dsc_all_reduce_rms_norm(walk_world.alone, input, residual, weight, tokens, hidden, dtype, \
                                         epsilon, kept, output))

static void wrong_arrays(void) {
  NORM(DSC_ERR_INVALID_ARG, NULL, residual, weight, kept, output);
  NORM(DSC_ERR_INVALID_ARG, input, residual, weight, kept, NULL);
  NORM(DSC_ERR_INVALID_ARG, MISALIGNED(input), residual, weight, kept, output);
  NORM(DSC_ERR_INVALID_ARG, input, MISALIGNED(residual), weight, kept, output);
  NORM(DSC_ERR_INVALID_ARG, input, residual, MISALIGNED(weight), kept, output);
  NORM(DSC_ERR_INVALID_ARG, input, residual, weight, MISALIGNED(kept), output);
  NORM(DSC_ERR_INVALID_ARG, input, residual, weight, kept, MISALIGNED(output));
  NORM(DSC_ERR_INVALID_ARG, input, residual, weight, kept, input + 1);
  NORM(DSC_ERR_INVALID_ARG, input, residual, weight, kept, residual);
  NORM(DSC_ERR_INVALID_ARG, input, residual, weight, kept, weight);
  NORM(DSC_ERR_INVALID_ARG, input, residual, weight, kept, kept);
  NORM(DSC_ERR_INVALID_ARG, input, residual, weight, weight, output);
  NORM(DSC_ERR_INVALID_ARG, input, residual, weight, residual + 1, output);
  NORM(DSC_ERR_INVALID_ARG, input, residual, weight, input + 1, output);
}

static void wrong_numbers(void) {
  NORM_OF(DSC_ERR_INVALID_ARG, TOKENS, 0, DSC_DTYPE_F32, 1);
  NORM_OF(DSC_ERR_INVALID_ARG, 0, 0, DSC_DTYPE_F32, 1);
  NORM_OF(DSC_ERR_INVALID_ARG, TOKENS, HIDDEN, 0, 1);
  NORM_OF(DSC_ERR_INVALID_ARG, TOKENS, HIDDEN, DSC_DTYPE_BOOL + 1, 1);
  NORM_OF(DSC_ERR_UNSUPPORTED, TOKENS, HIDDEN, DSC_DTYPE_I32, 1);
  NORM_OF(DSC_ERR_UNSUPPORTED, TOKENS, HIDDEN, DSC_DTYPE_F8E4M3, 1);
  NORM_OF(DSC_ERR_OVERFLOW, TOKENS, SIZE_MAX, DSC_DTYPE_F32, 1);
  NORM_OF(DSC_ERR_OVERFLOW, SIZE_MAX / 4, HIDDEN, DSC_DTYPE_F32, 1);
  static const double wrong[] = {0, -1, NAN, INFINITY, 1e-39, 1e39};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    NORM_OF(DSC_ERR_INVALID_ARG, TOKENS, HIDDEN, DSC_DTYPE_F32, wrong[i]);
    NORM_OF(DSC_ERR_INVALID_ARG, TOKENS, HIDDEN, DSC_DTYPE_BF16, wrong[i]);
  }
  for (int i = 0; i < 4; ++i) NORM_OF(DSC_ERR_INVALID_ARG, 1, 1, DSC_DTYPE_F64, wrong[i]);
  NORM_OF(DSC_ERR_INVALID_ARG, 1, 1, DSC_DTYPE_F64, 1e-310);
}

static void all_reduce_rms_norm(void) {
  WALK_BAD_HANDLES(
      WALK_COMM, dsc_comm_t,
      dsc_all_reduce_rms_norm(bad, input, residual, weight, TOKENS, HIDDEN, DSC_DTYPE_F32, 1, kept, output));
  output[0] = kept[0] = 7;
  wrong_arrays();
  wrong_numbers();
  WALK(DSC_OK, dsc_batch_begin(walk_world.alone));
  NORM(DSC_ERR_STATE, input, residual, weight, kept, output);
  WALK(DSC_OK, dsc_batch_end(walk_world.alone, NULL, NULL));
  EXPECT(output[0] == 7 && kept[0] == 7);
  NORM(DSC_OK, input, residual, weight, kept, output);
  EXPECT(kept[0] == 3 && kept[1] == 4 && output[COUNT - 1] == 0);
  EXPECT(fabsf(output[0] - 3 / sqrtf(25 / 3.f)) < 1e-6f && fabsf(output[1] - 8 / sqrtf(25 / 3.f)) < 2e-6f);
  WALK(DSC_OK,
       dsc_all_reduce_rms_norm(walk_world.alone, NULL, NULL, NULL, 0, 1, DSC_DTYPE_F32, 1, NULL, NULL));
}

const walk_step_t walk_rms_norm[] = {
    {"dsc_all_reduce_rms_norm", all_reduce_rms_norm},
    {NULL, NULL},
};
