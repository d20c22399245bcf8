/* Tied layers: copies at the start, sums of gradients, and ranks that disagree. */
#include <stdio.h>
#include <string.h>

#include "cmocka_c.h"
#include "ranks.h"

enum { WIDTH = 300, MOST_KEYS = 5, MOST_STAGES = 4 };

/* What one rank passes: keys with their stages, and its copies of the weights. */
typedef struct model {
  dsc_tied_key_t keys[MOST_KEYS];
  int32_t stages[MOST_KEYS][MOST_STAGES];
  dsc_tensor_t tensors[MOST_KEYS][2];
  float weights[MOST_KEYS][2][WIDTH];
  dsc_tensor_t grads[2 * MOST_KEYS];
  float grad_values[2 * MOST_KEYS][WIDTH];
  size_t n_keys;
  size_t n_grads;
} model_t;

static dsc_tensor_t tensor(void* data, dsc_dtype_t dtype, size_t count) {
  return (dsc_tensor_t){
      .struct_size = sizeof(dsc_tensor_t), .data = data, .count = count, .dtype = dtype, .device = -1};
}

/* Adds a key of two weights if `stage` has it. Each weight has different numbers. */
static void add_key(model_t* model, int32_t stage, const char* name, const char* stages, int32_t salt) {
  const size_t k = model->n_keys++;
  dsc_tied_key_t* key = &model->keys[k];
  *key = (dsc_tied_key_t){.struct_size = sizeof *key, .key = name, .stages = model->stages[k]};
  bool holds = false;
  for (const char* digit = stages; *digit != 0; ++digit) {
    model->stages[k][key->n_stages++] = *digit - '0';
    holds = holds || *digit - '0' == stage;
  }
  if (!holds) return;
  key->weights = model->tensors[k];
  key->n_weights = 2;
  for (int w = 0; w < 2; ++w) {
    const size_t g = model->n_grads++;
    for (int i = 0; i < WIDTH; ++i) {
      model->weights[k][w][i] = (float)(1000 * stage + 100 * salt + 10 * w + i % 7);
      model->grad_values[g][i] = (float)((stage + 1) * (salt + 2) + w + i % 5);
    }
    model->tensors[k][w] = tensor(model->weights[k][w], DSC_DTYPE_F32, (size_t)(WIDTH - w));
    model->grads[g] = tensor(model->grad_values[g], DSC_DTYPE_F32, (size_t)(WIDTH - w));
  }
}

/* A model with four stages. The order of the keys and of their stages differs between ranks. */
static void make_model(model_t* model, int32_t stage) {
  memset(model, 0, sizeof *model);
  if (stage % 2 == 0) add_key(model, stage, "embed", "03", 1);
  add_key(model, stage, "norm", stage == 1 ? "321" : "123", 2);
  add_key(model, stage, "alone", "2", 3);
  if (stage % 2 != 0) add_key(model, stage, "embed", "30", 1);
  add_key(model, stage, "bias", "03", 4);
}

static int check_values(rank_t* self, const float* values, int32_t stage, int32_t w, int32_t salt) {
  for (int i = 0; i < WIDTH - w; ++i) {
    const float expected = (float)(1000 * stage + 100 * salt + 10 * w + i % 7);
    if (values[i] != expected) FAIL(self, "weight %d is %g, expected %g", i, values[i], expected);
  }
  return 0;
}

/* Checks the sum over the stages of a key of the values from add_key(). */
static int check_sums(rank_t* self, const dsc_tied_key_t* key, const float* values, int32_t w, int32_t salt) {
  for (int i = 0; i < WIDTH - w; ++i) {
    float expected = 0;
    for (size_t s = 0; s < key->n_stages; ++s)
      expected += (float)((key->stages[s] + 1) * (salt + 2) + w + i % 5);
    if (values[i] != expected) FAIL(self, "%s: sum %d is %g, expected %g", key->key, i, values[i], expected);
  }
  return 0;
}

static int32_t salt_of(const char* key) {
  static const char* const names[] = {"embed", "norm", "alone", "bias"};
  for (int32_t salt = 0; salt < 4; ++salt)
    if (strcmp(key, names[salt]) == 0) return salt + 1;
  return 0;
}

static int32_t owner_of(const dsc_tied_key_t* key) {
  int32_t first = key->stages[0];
  for (size_t s = 1; s < key->n_stages; ++s)
    if (key->stages[s] < first) first = key->stages[s];
  return first;
}

static int check_model(rank_t* self, const model_t* model, bool copied, bool summed, int32_t stage) {
  size_t g = 0;
  for (size_t k = 0; k < model->n_keys; ++k) {
    const dsc_tied_key_t* key = &model->keys[k];
    for (int32_t w = 0; w < (int32_t)key->n_weights; ++w, ++g) {
      const int32_t from = copied ? owner_of(key) : stage;
      PASS_ON(check_values(self, model->weights[k][w], from, w, salt_of(key->key)));
      if (summed) PASS_ON(check_sums(self, key, model->grad_values[g], w, salt_of(key->key)));
    }
  }
  return 0;
}

static int check_owners(rank_t* self, dsc_tied_layers_t* tied, const model_t* model, int32_t stage) {
  for (size_t k = 0; k < model->n_keys; ++k) {
    int32_t owner = -1, counts = -1;
    CHECK_OK(self, dsc_tied_layers_owner(tied, model->keys[k].key, &owner, &counts));
    CHECK(self, owner == owner_of(&model->keys[k]));
    CHECK(self, counts == (owner == stage));
  }
  return 0;
}

static int four_stages(rank_t* self) {
  static const int32_t syncs[] = {1, 0};
  for (size_t i = 0; i < 2; ++i) {
    model_t model;
    make_model(&model, self->rank);
    dsc_tied_layers_options_t options;
    CHECK_OK(self, dsc_tied_layers_options_init(&options, sizeof options));
    options.sync = syncs[i];
    dsc_tied_layers_t* tied = NULL;
    CHECK_OK(self, dsc_tied_layers_create(self->world, model.keys, model.n_keys, &options, &tied));
    PASS_ON(check_model(self, &model, syncs[i] == 1, false, self->rank));
    PASS_ON(check_owners(self, tied, &model, self->rank));
    for (int run = 0; run < 3; ++run) {
      model_t fresh;
      make_model(&fresh, self->rank);
      CHECK_OK(self, dsc_tied_layers_reduce(tied, fresh.grads, fresh.n_grads, NULL));
      PASS_ON(check_model(self, &fresh, false, true, self->rank));
    }
    CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
    CHECK_OK(self, dsc_tied_layers_destroy(tied));
  }
  return 0;
}

static void copies_and_sums(void** state) {
  (void)state;
  assert_int_equal(run_ranks(4, four_stages, NULL), 0);
}

/* Two separate pipelines of four stages: stage s of pipeline p is rank 7 - (4 p + s).
 */
static int two_pipelines(rank_t* self) {
  const int32_t place = 7 - self->rank;
  model_t model;
  make_model(&model, place % 4);
  const int32_t ranks[] = {7, 6, 5, 4, 3, 2, 1, 0};
  dsc_tied_layers_options_t options;
  CHECK_OK(self, dsc_tied_layers_options_init(&options, sizeof options));
  options.ranks = ranks;
  options.n_stages = 4;
  options.n_pipelines = 2;
  if (place >= 4)
    for (size_t g = 0; g < model.n_grads; ++g)
      for (int i = 0; i < WIDTH; ++i) model.grad_values[g][i] *= 3;
  dsc_tied_layers_t* tied = NULL;
  CHECK_OK(self, dsc_tied_layers_create(self->world, model.keys, model.n_keys, &options, &tied));
  PASS_ON(check_owners(self, tied, &model, place % 4));
  CHECK_OK(self, dsc_tied_layers_reduce(tied, model.grads, model.n_grads, NULL));
  if (place >= 4)
    for (size_t g = 0; g < model.n_grads; ++g)
      for (int i = 0; i < WIDTH; ++i) model.grad_values[g][i] /= 3;
  PASS_ON(check_model(self, &model, true, true, place % 4));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  CHECK_OK(self, dsc_tied_layers_destroy(tied));
  return 0;
}

static void pipelines_are_apart(void** state) {
  (void)state;
  assert_int_equal(run_ranks(8, two_pipelines, NULL), 0);
}

/* ---- ranks that disagree ---- */

typedef struct spoiling {
  const char* what;
  void (*spoil)(model_t* model, dsc_tied_layers_options_t* options); /* applied on rank 2 */
  dsc_result_t expected;
  const char* text; /* part of the message on every rank */
} spoiling_t;

static void drop_key(model_t* model, dsc_tied_layers_options_t* options) {
  (void)options;
  --model->n_keys;
  model->keys[0] = model->keys[model->n_keys];
}

static void drop_last_key(model_t* model, dsc_tied_layers_options_t* options) {
  (void)options;
  model->keys[1] = model->keys[--model->n_keys];
}

static void rename_key(model_t* model, dsc_tied_layers_options_t* options) {
  (void)options;
  model->keys[0].key = "Embed";
}

static void move_key(model_t* model, dsc_tied_layers_options_t* options) {
  (void)options;
  model->stages[0][1] = 1;
}

static void keep_own(model_t* model, dsc_tied_layers_options_t* options) {
  (void)model;
  options->sync = 0;
}

static void shorten(model_t* model, dsc_tied_layers_options_t* options) {
  (void)options;
  model->tensors[1][0].count = WIDTH - 1;
}

static void forget_weights(model_t* model, dsc_tied_layers_options_t* options) {
  (void)options;
  model->keys[1].n_weights = 0;
}

static void hold_more(model_t* model, dsc_tied_layers_options_t* options) {
  (void)options;
  model->keys[0].weights = model->tensors[1];
  model->keys[0].n_weights = 1;
}

static void repeat_key(model_t* model, dsc_tied_layers_options_t* options) {
  (void)options;
  model->keys[0].key = "norm";
}

static void leave_out_name(model_t* model, dsc_tied_layers_options_t* options) {
  (void)options;
  model->keys[0].key = NULL;
}

static void use_bad_type(model_t* model, dsc_tied_layers_options_t* options) {
  (void)options;
  model->tensors[1][0].dtype = 99;
}

static void use_small_options(model_t* model, dsc_tied_layers_options_t* options) {
  (void)model;
  options->struct_size = 4;
}

static const spoiling_t kSpoilings[] = {
    {"a missing key", drop_key, DSC_ERR_MISMATCH,
     "rank 0 passed key 'embed' on stages 0, 3, and rank 2 passed key 'norm' on stages 1, 2, 3"},
    {"a missing last key", drop_last_key, DSC_ERR_MISMATCH,
     "rank 0 passed key 'norm' on stages 1, 2, 3, and rank 2 passed no further key"},
    {"another key", rename_key, DSC_ERR_MISMATCH, "and rank 2 passed key 'Embed' on stages 0, 3"},
    {"another stage", move_key, DSC_ERR_MISMATCH,
     "rank 0 passed key 'embed' on stages 0, 3, and rank 2 passed key 'embed' on stages 0, 1"},
    {"other options", keep_own, DSC_ERR_MISMATCH, "rank 2 passed sync = false"},
    {"another shape", shorten, DSC_ERR_MISMATCH,
     "the same weights of key 'norm', but they are f32, 300 elements; f32, 299 elements on rank 1 and f32, "
     "299 "
     "elements; f32, 299 elements on rank 2"},
    {"no weights", forget_weights, DSC_ERR_INVALID_ARG,
     "rank 2: key 'norm' has no weights, but the stage of this rank (2) holds it"},
    {"too many weights", hold_more, DSC_ERR_INVALID_ARG,
     "rank 2: key 'embed' has weights, but the stage of this rank (2) does not hold it"},
    {"a key twice", repeat_key, DSC_ERR_INVALID_ARG, "rank 2: keys has 'norm' twice, expected each key once"},
    {"no name", leave_out_name, DSC_ERR_INVALID_ARG, "rank 2: keys[0].key is NULL"},
    {"a bad type", use_bad_type, DSC_ERR_INVALID_ARG,
     "rank 2: parameter 0: dtype is 99, expected 1 (i8) to 13 (bool)"},
    {"options that nobody filled", use_small_options, DSC_ERR_INVALID_ARG,
     "rank 2: options->struct_size is 4"},
};

static int disagree(rank_t* self) {
  const spoiling_t* spoiling = self->arg;
  model_t model;
  make_model(&model, self->rank);
  dsc_tied_layers_options_t options;
  CHECK_OK(self, dsc_tied_layers_options_init(&options, sizeof options));
  if (self->rank == 2) spoiling->spoil(&model, &options);
  dsc_tied_layers_t* tied = (dsc_tied_layers_t*)&model;
  const int64_t start = now_ms();
  CHECK_RESULT(self, spoiling->expected,
               dsc_tied_layers_create(self->world, model.keys, model.n_keys, &options, &tied));
  CHECK(self, tied == NULL);
  CHECK(self, now_ms() - start < 10000);
  if (strstr(dsc_last_error_message(), spoiling->text) == NULL)
    FAIL(self, "the message is \"%s\", expected \"%s\" in it", dsc_last_error_message(), spoiling->text);
  make_model(&model, self->rank); /* the communicator still works */
  CHECK_OK(self, dsc_tied_layers_create(self->world, model.keys, model.n_keys, NULL, &tied));
  CHECK_OK(self, dsc_tied_layers_reduce(tied, model.grads, model.n_grads, NULL));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  return dsc_tied_layers_destroy(tied) != DSC_OK;
}

static void disagreement_is_told_to_all(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof kSpoilings / sizeof *kSpoilings; ++i)
    if (run_ranks(4, disagree, &kSpoilings[i]) != 0) fail_msg("%s", kSpoilings[i].what);
}

/* ---- sums that fail ---- */

/* Stage 3 has another type in the group of 0 and 3. So it never reaches the group of 1, 2 and 3. */
static int fail_in_first_group(rank_t* self) {
  model_t model;
  make_model(&model, self->rank);
  dsc_tied_layers_t* tied = NULL;
  CHECK_OK(self, dsc_tied_layers_create(self->world, model.keys, model.n_keys, NULL, &tied));
  if (self->rank == 3)
    for (size_t g = 0; g < model.n_grads; ++g) model.grads[g].dtype = DSC_DTYPE_I32;
  const int64_t start = now_ms();
  const dsc_result_t result = dsc_tied_layers_reduce(tied, model.grads, model.n_grads, NULL);
  CHECK(self, result < 0);
  if (self->rank == 0 || self->rank == 3) CHECK(self, result == DSC_ERR_MISMATCH);
  CHECK(self, now_ms() - start < 10000); /* no rank waits for the time-out, which is longer */
  CHECK(self, dsc_tied_layers_reduce(tied, model.grads, model.n_grads, NULL) < 0);
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL)); /* the world still works */
  return dsc_tied_layers_destroy(tied) != DSC_OK;
}

static void a_failed_sum_ends_the_others(void** state) {
  (void)state;
  assert_int_equal(run_ranks(4, fail_in_first_group, NULL), 0);
}

/* A wrong call of one rank does not affect other ranks. The rank can repeat the call correctly. */
static int refuse_gradients(rank_t* self) {
  model_t model;
  make_model(&model, self->rank);
  dsc_tied_layers_t* tied = NULL;
  CHECK_OK(self, dsc_tied_layers_create(self->world, model.keys, model.n_keys, NULL, &tied));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_tied_layers_reduce(tied, model.grads, model.n_grads - 1, NULL));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_tied_layers_reduce(tied, NULL, model.n_grads, NULL));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED, dsc_tied_layers_reduce(tied, model.grads, model.n_grads, &model));
  dsc_tensor_t grads[2 * MOST_KEYS];
  memcpy(grads, model.grads, sizeof grads);
  grads[1].count = 7;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_tied_layers_reduce(tied, grads, model.n_grads, NULL));
  CHECK(self, strstr(dsc_last_error_message(), "has 7 elements, expected 299") != NULL);
  memcpy(grads, model.grads, sizeof grads);
  grads[0].data = NULL;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_tied_layers_reduce(tied, grads, model.n_grads, NULL));
  CHECK_OK(self, dsc_tied_layers_reduce(tied, model.grads, model.n_grads, NULL));
  PASS_ON(check_model(self, &model, true, true, self->rank));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  return dsc_tied_layers_destroy(tied) != DSC_OK;
}

static void wrong_gradients_are_refused(void** state) {
  (void)state;
  assert_int_equal(run_ranks(4, refuse_gradients, NULL), 0);
}

/* ---- inside a pipeline ---- */

typedef struct training {
  rank_t* self;
  model_t model;
  dsc_tied_layers_t* tied;
  int sums;
} training_t;

static int32_t pass(void* context, const dsc_pipe_call_t* call) {
  (void)context;
  if (call->loss != NULL) *call->loss = 1;
  return 0;
}

static int32_t sum_tied(void* context, const dsc_pipe_call_t* call) {
  (void)call;
  training_t* training = context;
  ++training->sums;
  return dsc_tied_layers_reduce(training->tied, training->model.grads, training->model.n_grads, NULL);
}

static int train(rank_t* self) {
  training_t training = {.self = self};
  make_model(&training.model, self->rank);
  CHECK_OK(self, dsc_tied_layers_create(self->world, training.model.keys, training.model.n_keys, NULL,
                                        &training.tied));
  dsc_pipe_schedule_options_t schedule_options;
  dsc_pipe_callbacks_t callbacks;
  dsc_pipe_run_options_t options;
  CHECK_OK(self, dsc_pipe_schedule_options_init(&schedule_options, sizeof schedule_options));
  CHECK_OK(self, dsc_pipe_callbacks_init(&callbacks, sizeof callbacks));
  CHECK_OK(self, dsc_pipe_run_options_init(&options, sizeof options));
  schedule_options.name = "deepspeed_train";
  schedule_options.stages = 4;
  schedule_options.stage = self->rank;
  schedule_options.micro_batches = 3;
  callbacks.context = &training;
  callbacks.load_micro_batch = callbacks.forward = callbacks.backward = pass;
  callbacks.reduce_grads = callbacks.optimizer_step = pass;
  callbacks.reduce_tied_grads = sum_tied;
  const dsc_tensor_t activation = tensor(NULL, DSC_DTYPE_F32, 2);
  options.inputs = self->rank > 0 ? &activation : NULL;
  options.n_inputs = self->rank > 0;
  options.outputs = self->rank < 3 ? &activation : NULL;
  options.n_outputs = self->rank < 3;
  dsc_pipe_schedule_t* schedule = NULL;
  CHECK_OK(self, dsc_pipe_schedule_create(&schedule_options, &schedule));
  CHECK_OK(self, dsc_pipe_run(schedule, self->world, &callbacks, &options, NULL));
  CHECK(self, training.sums == 1);
  PASS_ON(check_model(self, &training.model, true, true, self->rank));
  CHECK_OK(self, dsc_pipe_schedule_destroy(schedule));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  return dsc_tied_layers_destroy(training.tied) != DSC_OK;
}

static void a_pipeline_sums_tied_gradients(void** state) {
  (void)state;
  assert_int_equal(run_ranks(4, train, NULL), 0);
}

/* ---- one rank that leaves ---- */

static int leave(rank_t* self) {
  model_t model;
  make_model(&model, self->rank);
  dsc_tied_layers_t* tied = NULL;
  CHECK_OK(self, dsc_tied_layers_create(self->world, model.keys, model.n_keys, NULL, &tied));
  if (self->rank == 3) {
    CHECK_OK(self, dsc_tied_layers_destroy(tied));
    CHECK_RESULT(self, DSC_ERR_BAD_HANDLE, dsc_tied_layers_destroy(tied));
  } else {
    const dsc_result_t result = dsc_tied_layers_reduce(tied, model.grads, model.n_grads, NULL);
    CHECK(self, result == DSC_ERR_PEER_LEFT);
    CHECK_OK(self, dsc_tied_layers_destroy(tied));
  }
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  return 0;
}

static void others_hear_that_one_has_left(void** state) {
  (void)state;
  assert_int_equal(run_ranks(4, leave, NULL), 0);
}

static int one_stage(rank_t* self) {
  model_t model;
  memset(&model, 0, sizeof model);
  add_key(&model, 0, "embed", "0", 1);
  dsc_tied_layers_t* tied = NULL;
  CHECK_OK(self, dsc_tied_layers_create(self->world, model.keys, 1, NULL, &tied));
  CHECK_OK(self, dsc_tied_layers_reduce(tied, model.grads, model.n_grads, NULL));
  PASS_ON(check_model(self, &model, true, true, 0));
  CHECK_OK(self, dsc_tied_layers_destroy(tied));
  CHECK_OK(self, dsc_tied_layers_create(self->world, NULL, 0, NULL, &tied));
  CHECK_OK(self, dsc_tied_layers_reduce(tied, NULL, 0, NULL));
  return dsc_tied_layers_destroy(tied) != DSC_OK;
}

static void one_stage_shares_nothing(void** state) {
  (void)state;
  assert_int_equal(run_ranks(1, one_stage, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(copies_and_sums),
      cmocka_unit_test(pipelines_are_apart),
      cmocka_unit_test(disagreement_is_told_to_all),
      cmocka_unit_test(a_failed_sum_ends_the_others),
      cmocka_unit_test(wrong_gradients_are_refused),
      cmocka_unit_test(a_pipeline_sums_tied_gradients),
      cmocka_unit_test(others_hear_that_one_has_left),
      cmocka_unit_test(one_stage_shares_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
