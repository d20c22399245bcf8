/* Tied layers. */
#include <stdint.h>

#include "capi_walk.h"

#define T walk_world.tied

static float values[8];

static dsc_tensor_t tensor(void) {
  const dsc_tensor_t it = {
      .struct_size = sizeof it, .data = values, .count = 8, .dtype = DSC_DTYPE_F32, .device = -1};
  return it;
}

static void plan(void) {
  const char* const keys[] = {"head", "embed", "embed"};
  const char* const missing[] = {"head", NULL, "embed"};
  const char* const unnamed[] = {"head", "", "embed"};
  const size_t layers[] = {5, 0, 5}, outside[] = {5, 0, 6}, twice[] = {5, 0, 0};
  const size_t boundaries[] = {0, 2, 2, 6}, falling[] = {0, 4, 2, 6}, late[] = {1, 2, 2, 6};
  size_t entries[3] = {9, 9, 9}, starts[4] = {9, 9, 9, 9}, n = 9;
  int32_t stages[3] = {9, 9, 9};
  WALK_INVALID(dsc_tied_plan(NULL, layers, 3, boundaries, 3, entries, starts, stages, &n));
  WALK_INVALID(dsc_tied_plan(missing, layers, 3, boundaries, 3, entries, starts, stages, &n));
  WALK_INVALID(dsc_tied_plan(unnamed, layers, 3, boundaries, 3, entries, starts, stages, &n));
  WALK_INVALID(dsc_tied_plan(keys, NULL, 3, boundaries, 3, entries, starts, stages, &n));
  WALK_INVALID(dsc_tied_plan(keys, outside, 3, boundaries, 3, entries, starts, stages, &n));
  WALK_INVALID(dsc_tied_plan(keys, twice, 3, boundaries, 3, entries, starts, stages, &n));
  WALK_INVALID(dsc_tied_plan(keys, layers, 3, NULL, 3, entries, starts, stages, &n));
  WALK_INVALID(dsc_tied_plan(keys, layers, 3, falling, 3, entries, starts, stages, &n));
  WALK_INVALID(dsc_tied_plan(keys, layers, 3, late, 3, entries, starts, stages, &n));
  WALK_INVALID(dsc_tied_plan(keys, layers, 3, boundaries, 0, entries, starts, stages, &n));
  WALK_INVALID(dsc_tied_plan(keys, layers, 3, boundaries, (size_t)1 << 31, entries, starts, stages, &n));
  WALK_INVALID(dsc_tied_plan(keys, layers, 3, boundaries, 3, NULL, starts, stages, &n));
  WALK_INVALID(dsc_tied_plan(keys, layers, 3, boundaries, 3, entries, NULL, stages, &n));
  WALK_INVALID(dsc_tied_plan(keys, layers, 3, boundaries, 3, entries, starts, NULL, &n));
  WALK_INVALID(dsc_tied_plan(keys, layers, 3, boundaries, 3, entries, starts, stages, NULL));
  EXPECT(entries[0] == 9 && starts[0] == 9 && stages[0] == 9 && n == 9);
  WALK(DSC_OK, dsc_tied_plan(keys, layers, 3, boundaries, 3, entries, starts, stages, &n));
  EXPECT(n == 2 && entries[0] == 1 && entries[1] == 0);
  EXPECT(starts[0] == 0 && starts[1] == 2 && starts[2] == 3);
  EXPECT(stages[0] == 0 && stages[1] == 2 && stages[2] == 2);
  WALK(DSC_OK, dsc_tied_plan(NULL, NULL, 0, boundaries, 3, NULL, starts, NULL, &n));
  EXPECT(n == 0 && starts[0] == 0);
}

static void options_init(void) {
  dsc_tied_layers_options_t options;
  memset(&options, 0x77, sizeof options);
  WALK_INVALID(dsc_tied_layers_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_tied_layers_options_init(&options, sizeof options - 1));
  EXPECT(options.sync == 0x77777777);
  WALK(DSC_OK, dsc_tied_layers_options_init(&options, sizeof options));
  EXPECT(options.ranks == NULL && options.n_stages == 0 && options.n_pipelines == 0 && options.sync == 1);
}

/* In a group that has only this rank. tests/ranks checks what happens when ranks disagree. */
static void create(void) {
  const int32_t stages[] = {0, 0}, outside[] = {1}, two[] = {0, 1};
  dsc_tensor_t weight = tensor();
  const dsc_tied_key_t good = {.struct_size = sizeof good,
                               .key = "embed",
                               .stages = stages,
                               .n_stages = 1,
                               .weights = &weight,
                               .n_weights = 1};
  dsc_comm_t* const alone = walk_world.alone;
  dsc_tied_layers_t* made = T;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_tied_layers_create(bad, &good, 1, NULL, &made));
  EXPECT(made == NULL);
  WALK_INVALID(dsc_tied_layers_create(alone, &good, 1, NULL, NULL));
  WALK_INVALID(dsc_tied_layers_create(alone, NULL, 1, NULL, &made));
  dsc_tied_key_t wrong[9];
  for (int i = 0; i < 9; ++i) wrong[i] = good;
  wrong[0].struct_size = 8;
  wrong[1].key = NULL;
  wrong[2].key = "";
  wrong[3].key = "a\nb";
  wrong[4].n_stages = 2; /* stage 0 is listed twice */
  wrong[5].stages = outside;
  wrong[6].n_stages = 0;
  wrong[7].n_weights = 0;
  wrong[8].weights = NULL;
  for (int i = 0; i < 9; ++i) WALK_INVALID(dsc_tied_layers_create(alone, &wrong[i], 1, NULL, &made));
  const dsc_tied_key_t twice[] = {good, good};
  WALK_INVALID(dsc_tied_layers_create(alone, twice, 2, NULL, &made));
  weight.device = 0;
  WALK(DSC_ERR_UNSUPPORTED, dsc_tied_layers_create(alone, &good, 1, NULL, &made));
  weight = tensor();
  weight.data = NULL;
  WALK_INVALID(dsc_tied_layers_create(alone, &good, 1, NULL, &made));
  weight = tensor();
  dsc_tied_layers_options_t options[7];
  for (int i = 0; i < 7; ++i) WALK(DSC_OK, dsc_tied_layers_options_init(&options[i], sizeof *options));
  options[0].struct_size = 8;
  options[1].reserved = 1;
  options[2].sync = 2;
  options[3].n_stages = 1; /* ranks are missing */
  options[4].ranks = stages;
  options[4].n_stages = 1; /* the number of pipelines is 0 */
  options[5].ranks = outside;
  options[5].n_stages = options[5].n_pipelines = 1;
  options[6].ranks = two;
  options[6].n_stages = 2;
  options[6].n_pipelines = 1;
  for (int i = 0; i < 7; ++i) WALK_INVALID(dsc_tied_layers_create(alone, &good, 1, &options[i], &made));
  EXPECT(made == NULL);
  WALK(DSC_OK, dsc_tied_layers_create(alone, &good, 1, NULL, &made));
  WALK(DSC_OK, dsc_tied_layers_destroy(made));
}

static void reduce(void) {
  dsc_tensor_t grad = tensor();
  WALK_BAD_HANDLES(WALK_TIED, dsc_tied_layers_t, dsc_tied_layers_reduce(bad, &grad, 1, NULL));
  WALK_INVALID(dsc_tied_layers_reduce(T, NULL, 1, NULL));
  WALK_INVALID(dsc_tied_layers_reduce(T, &grad, 0, NULL));
  const dsc_tensor_t one_too_many[] = {grad, grad};
  WALK_INVALID(dsc_tied_layers_reduce(T, one_too_many, 2, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_tied_layers_reduce(T, &grad, 1, &grad));
  grad.count = 7;
  WALK_INVALID(dsc_tied_layers_reduce(T, &grad, 1, NULL));
  grad = tensor();
  grad.dtype = 0;
  WALK_INVALID(dsc_tied_layers_reduce(T, &grad, 1, NULL));
  grad = tensor();
  grad.data = NULL;
  WALK_INVALID(dsc_tied_layers_reduce(T, &grad, 1, NULL));
}

static void owner(void) {
  int32_t stage = 9, counts = 9;
  WALK_BAD_HANDLES(WALK_TIED, dsc_tied_layers_t, dsc_tied_layers_owner(bad, "embed", &stage, &counts));
  WALK_INVALID(dsc_tied_layers_owner(T, NULL, &stage, &counts));
  WALK_INVALID(dsc_tied_layers_owner(T, "embed", NULL, &counts));
  WALK_INVALID(dsc_tied_layers_owner(T, "Embed", &stage, &counts));
  EXPECT(strstr(dsc_last_error_message(), "expected one of: embed, alone") != NULL);
  EXPECT(stage == 9 && counts == 9);
  WALK(DSC_OK, dsc_tied_layers_owner(T, "embed", &stage, &counts));
  EXPECT(stage == 0 && counts == 1);
  WALK(DSC_OK, dsc_tied_layers_owner(T, "alone", &stage, &counts));
  EXPECT(stage == 1 && counts == 0);
}

static void destroy(void) {
  WALK(DSC_OK, dsc_tied_layers_destroy(NULL));
  WALK_BAD_HANDLES_BUT_NULL(WALK_TIED, dsc_tied_layers_t, dsc_tied_layers_destroy(bad));
}

const walk_step_t walk_tied[] = {
    {"dsc_tied_plan", plan},
    {"dsc_tied_layers_options_init", options_init},
    {"dsc_tied_layers_create", create},
    {"dsc_tied_layers_reduce", reduce},
    {"dsc_tied_layers_owner", owner},
    {"dsc_tied_layers_destroy", destroy},
    {NULL, NULL},
};
