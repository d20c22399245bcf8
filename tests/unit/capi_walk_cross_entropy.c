/* Cross entropy of a vocabulary that is split over the ranks. */
#include <math.h>
#include <stdint.h>

#include "capi_walk.h"

enum { TOKENS = 2, VOCAB = 3 };

static float logits[TOKENS * VOCAB], gradient[TOKENS * VOCAB], loss[TOKENS];
static double state[2 * TOKENS];
static const int64_t targets[TOKENS] = {0, 2};

static void options_init(void) {
  dsc_vocab_cross_entropy_options_t options;
  memset(&options, 0x77, sizeof options);
  WALK_INVALID(dsc_vocab_cross_entropy_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_vocab_cross_entropy_options_init(&options, sizeof options - 1));
  EXPECT(options.ignore_index == 0x7777777777777777);
  WALK(DSC_OK, dsc_vocab_cross_entropy_options_init(&options, sizeof options));
  EXPECT(options.ignore_index == INT64_MIN && options.label_smoothing == 0 && options.z_loss == 0);
}

/* Options that have one wrong field each. The last element is valid but not for a vocabulary of one word. */
enum { SMOOTHING = 7, OPTIONS };
static void make_options(dsc_vocab_cross_entropy_options_t* options) {
  for (int i = 0; i < OPTIONS; ++i)
    WALK(DSC_OK, dsc_vocab_cross_entropy_options_init(&options[i], sizeof *options));
  options[0].struct_size = 8;
  options[1].label_smoothing = -0.1;
  options[2].label_smoothing = 1;
  options[3].label_smoothing = NAN;
  options[4].z_loss = -1;
  options[5].z_loss = INFINITY;
  options[6].z_loss = NAN;
  options[SMOOTHING].label_smoothing = 0.5;
}

/* Arguments that forward and backward refuse: call(expected, logits, targets, tokens, vocab, dtype, options).
 */
#define WALK_BOTH(call)                                                                         \
  do {                                                                                          \
    static const int64_t below[TOKENS] = {0, -1}, above[TOKENS] = {VOCAB, 0};                   \
    dsc_vocab_cross_entropy_options_t options[OPTIONS];                                         \
    make_options(options);                                                                      \
    call(DSC_ERR_INVALID_ARG, NULL, targets, TOKENS, VOCAB, DSC_DTYPE_F32, NULL);               \
    call(DSC_ERR_INVALID_ARG, logits, NULL, TOKENS, VOCAB, DSC_DTYPE_F32, NULL);                \
    call(DSC_ERR_INVALID_ARG, logits, below, TOKENS, VOCAB, DSC_DTYPE_F32, NULL);               \
    call(DSC_ERR_INVALID_ARG, logits, above, TOKENS, VOCAB, DSC_DTYPE_F32, NULL);               \
    call(DSC_ERR_INVALID_ARG, logits, targets, TOKENS, 0, DSC_DTYPE_F32, NULL);                 \
    call(DSC_ERR_INVALID_ARG, logits, targets, 0, 0, DSC_DTYPE_F32, NULL);                      \
    call(DSC_ERR_INVALID_ARG, logits, targets, 0, 1, DSC_DTYPE_F32, &options[SMOOTHING]);       \
    call(DSC_ERR_INVALID_ARG, MISALIGNED(logits), targets, TOKENS, VOCAB, DSC_DTYPE_F32, NULL); \
    call(DSC_ERR_INVALID_ARG, logits, MISALIGNED(targets), TOKENS, VOCAB, DSC_DTYPE_F32, NULL); \
    call(DSC_ERR_INVALID_ARG, logits, targets, TOKENS, VOCAB, 0, NULL);                         \
    call(DSC_ERR_INVALID_ARG, logits, targets, TOKENS, VOCAB, DSC_DTYPE_BOOL + 1, NULL);        \
    call(DSC_ERR_UNSUPPORTED, logits, targets, TOKENS, VOCAB, DSC_DTYPE_I32, NULL);             \
    call(DSC_ERR_UNSUPPORTED, logits, targets, TOKENS, VOCAB, DSC_DTYPE_F8E4M3, NULL);          \
    call(DSC_ERR_OVERFLOW, logits, targets, SIZE_MAX / 2, VOCAB, DSC_DTYPE_F32, NULL);          \
    call(DSC_ERR_OVERFLOW, logits, targets, TOKENS, SIZE_MAX, DSC_DTYPE_F32, NULL);             \
    for (int i = 0; i < SMOOTHING; ++i)                                                         \
      call(DSC_ERR_INVALID_ARG, logits, targets, TOKENS, VOCAB, DSC_DTYPE_F32, &options[i]);    \
    call(DSC_OK, logits, targets, TOKENS, VOCAB, DSC_DTYPE_F32, &options[SMOOTHING]);           \
  } while (0)

#define MISALIGNED(array) ((void*)((uintptr_t)(array) + 1))
#define FORWARD(expected, ...) \
  WALK(expected, dsc_vocab_cross_entropy_forward(walk_world.alone, __VA_ARGS__, loss, state))
#define BACKWARD(expected, ...) \
  WALK(expected, dsc_vocab_cross_entropy_backward(walk_world.alone, __VA_ARGS__, state, NULL, gradient))
#define FORWARD_INTO(expected, loss, state)                                                        \
  WALK(expected, dsc_vocab_cross_entropy_forward(walk_world.alone, logits, targets, TOKENS, VOCAB, \
                                                 DSC_DTYPE_F32, NULL, loss, state))
#define BACKWARD_FROM(expected, state, weights, gradient)                                           \
  WALK(expected, dsc_vocab_cross_entropy_backward(walk_world.alone, logits, targets, TOKENS, VOCAB, \
                                                  DSC_DTYPE_F32, NULL, state, weights, gradient))

static void forward(void) {
  WALK_BAD_HANDLES(
      WALK_COMM, dsc_comm_t,
      dsc_vocab_cross_entropy_forward(bad, logits, targets, TOKENS, VOCAB, DSC_DTYPE_F32, NULL, loss, state));
  loss[0] = 7;
  FORWARD_INTO(DSC_ERR_INVALID_ARG, NULL, state);
  FORWARD_INTO(DSC_ERR_INVALID_ARG, MISALIGNED(loss), state);
  FORWARD_INTO(DSC_ERR_INVALID_ARG, loss, MISALIGNED(state));
  FORWARD_INTO(DSC_ERR_INVALID_ARG, logits, state);
  FORWARD_INTO(DSC_ERR_INVALID_ARG, state, state);
  FORWARD_INTO(DSC_ERR_INVALID_ARG, (void*)targets, state);
  EXPECT(loss[0] == 7);
  WALK(DSC_OK, dsc_batch_begin(walk_world.alone));
  FORWARD_INTO(DSC_ERR_STATE, loss, state);
  WALK(DSC_OK, dsc_batch_end(walk_world.alone, NULL, NULL));
  WALK_BOTH(FORWARD);
  FORWARD_INTO(DSC_OK, loss, NULL);
  EXPECT(fabsf(loss[0] - logf(VOCAB)) < 1e-6f && loss[0] == loss[1]);
}

static void backward(void) {
  float weights[TOKENS] = {1, 1};
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t,
                   dsc_vocab_cross_entropy_backward(bad, logits, targets, TOKENS, VOCAB, DSC_DTYPE_F32, NULL,
                                                    state, NULL, gradient));
  gradient[0] = 7;
  BACKWARD_FROM(DSC_ERR_INVALID_ARG, NULL, weights, gradient);
  BACKWARD_FROM(DSC_ERR_INVALID_ARG, state, weights, NULL);
  BACKWARD_FROM(DSC_ERR_INVALID_ARG, state, MISALIGNED(weights), gradient);
  BACKWARD_FROM(DSC_ERR_INVALID_ARG, state, weights, weights);
  BACKWARD_FROM(DSC_ERR_INVALID_ARG, state, weights, state);
  BACKWARD_FROM(DSC_ERR_INVALID_ARG, state, weights, logits + 1);
  EXPECT(gradient[0] == 7);
  FORWARD_INTO(DSC_OK, loss, state);
  WALK_BOTH(BACKWARD);
  BACKWARD_FROM(DSC_OK, state, weights, gradient);
  EXPECT(fabsf(gradient[0] + 2 / 3.f) < 1e-6f && fabsf(gradient[1] - 1 / 3.f) < 1e-6f);
}

const walk_step_t walk_cross_entropy[] = {
    {"dsc_vocab_cross_entropy_options_init", options_init},
    {"dsc_vocab_cross_entropy_forward", forward},
    {"dsc_vocab_cross_entropy_backward", backward},
    {NULL, NULL},
};
