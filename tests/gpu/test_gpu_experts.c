/* The exchanges of expert parallelism in device memory give the same bits as in host memory. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../ranks/moe_layer.h"
#include "cmocka_c.h"
#include "gpu.h"

/* A buffer of a layer, and its mirror on the device at an offset from the start of the allocation. */
typedef struct mirror {
  char *base, *at;
  size_t bytes;
} mirror_t;

/* The buffers of a layer on the device, and how the calls are made. */
typedef struct on_device {
  moe_layer_t it;
  void* stream;
  bool is_default_stream, starts;
  /* the index of the layer in the list, and the offset of buffers from a multiple of 16 */
  size_t layer, skew;
  mirror_t tokens, rows, expert_rows, weights, out, returned, gradient, row_gradients, weight_gradients,
      token_gradients;
} on_device_t;

static int fill(rank_t* self, const mirror_t* mirror, int byte) {
  char* const bytes = malloc(mirror->bytes + 1);
  CHECK(self, bytes != NULL);
  memset(bytes, byte, mirror->bytes + 1);
  const bool done = mirror->bytes == 0 || gpu_upload(mirror->at, bytes, mirror->bytes);
  free(bytes);
  CHECK(self, done);
  return 0;
}

static int open_mirror(rank_t* self, const on_device_t* on, mirror_t* mirror, size_t bytes) {
  mirror->base = gpu_alloc(bytes + 64);
  CHECK(self, mirror->base != NULL);
  mirror->at = mirror->base + on->skew;
  mirror->bytes = bytes;
  return fill(self, mirror, 0x55);
}

static int put(rank_t* self, const mirror_t* mirror, const void* from) {
  CHECK(self, mirror->bytes == 0 || gpu_upload(mirror->at, from, mirror->bytes));
  return 0;
}

/* Checks that the device has the same bits as the host. */
static int compare(rank_t* self, const on_device_t* on, const mirror_t* mirror, const char* expected,
                   const char* what) {
  char* const found = malloc(mirror->bytes + 1);
  CHECK(self, found != NULL && (mirror->bytes == 0 || gpu_download(found, mirror->at, mirror->bytes)));
  size_t at = 0;
  while (at < mirror->bytes && found[at] == expected[at]) ++at;
  const int was = found[at], wanted = at < mirror->bytes ? expected[at] : 0;
  free(found);
  if (at < mirror->bytes)
    FAIL(self, "layer %zu, %s, %zu off, %s: byte %zu of %zu is %d on the device, and %d on the host",
         on->layer, on->starts ? "started" : "in order", on->skew, what, at, mirror->bytes, was, wanted);
  return 0;
}

static int open_layer(rank_t* self, on_device_t* on, const moe_sizes_t* sizes, uint64_t seed) {
  moe_layer_t* const it = &on->it;
  PASS_ON(moe_layer_open(it, self, sizes, seed));
  const size_t row = sizes->hidden * it->bytes, tokens = it->own->count, slots = tokens * sizes->top_k;
  const size_t weight = moe_weight_bytes(sizes->dtype);
  const struct {
    mirror_t* mirror;
    size_t bytes;
  } all[] = {{&on->tokens, tokens * row},
             {&on->rows, it->info.rows * row},
             {&on->expert_rows, it->info.rows * row},
             {&on->weights, slots * weight},
             {&on->out, tokens * row},
             {&on->returned, slots * row},
             {&on->gradient, tokens * row},
             {&on->row_gradients, it->info.rows * row},
             {&on->weight_gradients, slots * weight},
             {&on->token_gradients, tokens * row}};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
    PASS_ON(open_mirror(self, on, all[i].mirror, all[i].bytes));
  if (!on->is_default_stream) CHECK(self, (on->stream = gpu_stream()) != NULL);
  return 0;
}

static int close_layer(rank_t* self, on_device_t* on) {
  mirror_t* const all[] = {
      &on->tokens,   &on->rows,     &on->expert_rows,   &on->weights,          &on->out,
      &on->returned, &on->gradient, &on->row_gradients, &on->weight_gradients, &on->token_gradients};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) gpu_free(all[i]->base);
  if (on->stream) gpu_stream_free(on->stream);
  return moe_layer_close(&on->it, self);
}

/* Makes the stream wait for a started call. Other calls are already in the stream's order. */
static int join(rank_t* self, const on_device_t* on, dsc_work_t* work) {
  if (!work) return 0;
  CHECK_OK(self, dsc_work_wait(work, -1, on->stream));
  CHECK_OK(self, dsc_work_destroy(work));
  return 0;
}

static int end(rank_t* self, const on_device_t* on, dsc_work_t* work) {
  PASS_ON(join(self, on, work));
  CHECK(self, gpu_synchronize(on->stream));
  return 0;
}

static int dispatch(rank_t* self, on_device_t* on) {
  const moe_sizes_t* const sizes = &on->it.sizes;
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_moe_dispatch(on->it.plan, on->tokens.at, sizes->hidden, sizes->dtype,
                                  DSC_MOE_PAYLOAD_PLAIN, on->rows.at, on->stream, on->starts ? &work : NULL));
  PASS_ON(end(self, on, work));
  return compare(self, on, &on->rows, on->it.rows, "rows");
}

static int combine(rank_t* self, on_device_t* on, bool weighs, bool returns) {
  const moe_sizes_t* const sizes = &on->it.sizes;
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_moe_combine(on->it.plan, on->expert_rows.at, weighs ? on->weights.at : NULL,
                                 sizes->hidden, sizes->dtype, on->out.at, returns ? on->returned.at : NULL,
                                 on->stream, on->starts ? &work : NULL));
  PASS_ON(end(self, on, work));
  PASS_ON(compare(self, on, &on->out, on->it.out, "output"));
  return returns ? compare(self, on, &on->returned, on->it.returned, "returned rows") : 0;
}

static int combine_backward(rank_t* self, on_device_t* on, bool weighs, bool products) {
  const moe_sizes_t* const sizes = &on->it.sizes;
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_moe_combine_backward(on->it.plan, on->gradient.at, weighs ? on->weights.at : NULL,
                                          products ? on->returned.at : NULL, sizes->hidden, sizes->dtype,
                                          on->row_gradients.at, products ? on->weight_gradients.at : NULL,
                                          on->stream, on->starts ? &work : NULL));
  PASS_ON(end(self, on, work));
  PASS_ON(compare(self, on, &on->row_gradients, on->it.row_gradients, "row gradients"));
  return products ? compare(self, on, &on->weight_gradients, on->it.weight_gradients, "weight gradients") : 0;
}

static int dispatch_backward(rank_t* self, on_device_t* on) {
  const moe_sizes_t* const sizes = &on->it.sizes;
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_moe_dispatch_backward(on->it.plan, on->row_gradients.at, sizes->hidden, sizes->dtype,
                                           on->token_gradients.at, on->stream, on->starts ? &work : NULL));
  PASS_ON(end(self, on, work));
  return compare(self, on, &on->token_gradients, on->it.token_gradients, "token gradients");
}

static int copy_row(rank_t* self, moe_layer_t* it, size_t row, size_t expert, int32_t source, size_t slot) {
  (void)self, (void)expert, (void)source, (void)slot;
  const size_t bytes = it->sizes.hidden * it->bytes;
  memcpy(it->rows + row * bytes, it->expert_rows + row * bytes, bytes); /* the rows were compared before */
  return 0;
}

/* Uploads the results of the experts, with NaNs in the padding. */
static int put_results(rank_t* self, on_device_t* on) {
  memset(on->it.rows, 0xff, on->rows.bytes);
  PASS_ON(moe_each_row(self, &on->it, copy_row));
  return put(self, &on->expert_rows, on->it.rows);
}

static int host_pass(rank_t* self, moe_layer_t* it, bool weighs) {
  const void* const weights = weighs ? it->weights : NULL;
  PASS_ON(moe_forward(self, it, false));
  if (!weighs)
    CHECK_OK(self, dsc_moe_combine(it->plan, it->expert_rows, NULL, it->sizes.hidden, it->sizes.dtype,
                                   it->out, it->returned, NULL, NULL));
  CHECK_OK(self,
           dsc_moe_combine_backward(it->plan, it->gradient, weights, it->returned, it->sizes.hidden,
                                    it->sizes.dtype, it->row_gradients, it->weight_gradients, NULL, NULL));
  CHECK_OK(self, dsc_moe_dispatch_backward(it->plan, it->row_gradients, it->sizes.hidden, it->sizes.dtype,
                                           it->token_gradients, NULL, NULL));
  return 0;
}

static int both_passes(rank_t* self, on_device_t* on, bool weighs, bool returns) {
  PASS_ON(host_pass(self, &on->it, weighs));
  PASS_ON(put(self, &on->tokens, on->it.own->values));
  PASS_ON(put(self, &on->weights, on->it.weights));
  PASS_ON(put(self, &on->gradient, on->it.gradient));
  PASS_ON(dispatch(self, on));
  PASS_ON(put_results(self, on));
  PASS_ON(combine(self, on, weighs, returns));
  PASS_ON(combine_backward(self, on, weighs, returns));
  return dispatch_backward(self, on);
}

static const moe_sizes_t layers[] = {
    {.experts = 4, .top_k = 2, .hidden = 8, .drop = DSC_MOE_DROP_LATEST, .dtype = DSC_DTYPE_F32},
    {.experts = 1, .top_k = 1, .hidden = 300, .drop = DSC_MOE_DROP_LATEST, .dtype = DSC_DTYPE_BF16},
    {.experts = 7, .top_k = 8, .hidden = 5, .drop = DSC_MOE_DROP_LATEST, .dtype = DSC_DTYPE_F64},
    {.experts = 3,
     .top_k = 3,
     .capacity = 4,
     .hidden = 16,
     .drop = DSC_MOE_DROP_LIGHTEST,
     .dtype = DSC_DTYPE_F16},
    {.experts = 5,
     .top_k = 2,
     .capacity = 2,
     .hidden = 33,
     .drop = DSC_MOE_DROP_LATEST,
     .dtype = DSC_DTYPE_BF16},
    {.experts = 5,
     .top_k = 6,
     .capacity = 3,
     .hidden = 24,
     .drop = DSC_MOE_DROP_LATEST,
     .padded = 1,
     .dtype = DSC_DTYPE_F32},
    {.experts = 3,
     .top_k = 1,
     .capacity = 5,
     .hidden = 64,
     .drop = DSC_MOE_DROP_LIGHTEST,
     .padded = 1,
     .dtype = DSC_DTYPE_BF16},
    {.experts = 2, .top_k = 2, .hidden = 0, .drop = DSC_MOE_DROP_LATEST, .dtype = DSC_DTYPE_F32},
};

static int layers_body(rank_t* self) {
  for (size_t i = 0; i < sizeof layers / sizeof *layers; ++i)
    for (int way = 0; way < 4; ++way) {
      on_device_t on = {
          .is_default_stream = way == 3, .starts = way % 2 == 1, .layer = i, .skew = way < 2 ? 0 : 8};
      PASS_ON(open_layer(self, &on, &layers[i], i));
      PASS_ON(both_passes(self, &on, way != 1, way != 2));
      PASS_ON(close_layer(self, &on));
    }
  return 0;
}

static void as_on_the_host(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, layers_body, NULL), 0);
}

/* ---- the order of streams */

static int check_refusal(rank_t* self, dsc_result_t found, dsc_result_t expected, const char* text) {
  CHECK_RESULT(self, expected, found);
  if (strstr(dsc_last_error_message(), text) == NULL)
    FAIL(self, "the error is '%s', expected '%s'", dsc_last_error_message(), text);
  return 0;
}

/* Dispatches the tokens, copies the rows as experts that change nothing would, and combines them. The host
 * does not wait in between. */
static int put_chain(rank_t* self, on_device_t* on, const char* tokens) {
  const moe_sizes_t* const sizes = &on->it.sizes;
  dsc_work_t* work = NULL;
  dsc_work_t** const given = on->starts ? &work : NULL;
  if (on->tokens.bytes > 0) CHECK(self, gpu_copy(on->tokens.at, tokens, on->tokens.bytes, on->stream));
  CHECK_OK(self, dsc_moe_dispatch(on->it.plan, on->tokens.at, sizes->hidden, sizes->dtype,
                                  DSC_MOE_PAYLOAD_PLAIN, on->rows.at, on->stream, given));
  PASS_ON(join(self, on, work));
  if (on->rows.bytes > 0) CHECK(self, gpu_copy(on->expert_rows.at, on->rows.at, on->rows.bytes, on->stream));
  CHECK_OK(self, dsc_moe_combine(on->it.plan, on->expert_rows.at, on->weights.at, sizes->hidden, sizes->dtype,
                                 on->out.at, NULL, on->stream, given));
  return join(self, on, work);
}

/* Computes the same result in host memory. */
static int host_chain(rank_t* self, on_device_t* on) {
  moe_layer_t* const it = &on->it;
  CHECK_OK(self, dsc_moe_dispatch(it->plan, it->own->values, it->sizes.hidden, it->sizes.dtype,
                                  DSC_MOE_PAYLOAD_PLAIN, it->rows, NULL, NULL));
  CHECK_OK(self, dsc_moe_combine(it->plan, it->rows, it->weights, it->sizes.hidden, it->sizes.dtype, it->out,
                                 NULL, NULL, NULL));
  return 0;
}

static int open_chain(rank_t* self, on_device_t* on, mirror_t* tokens, size_t layer) {
  PASS_ON(open_layer(self, on, &layers[layer], layer));
  PASS_ON(host_chain(self, on));
  PASS_ON(open_mirror(self, on, tokens, on->tokens.bytes));
  PASS_ON(put(self, tokens, on->it.own->values));
  return put(self, &on->weights, on->it.weights);
}

/* Makes later work on the streams wait for the last rank, which joins late. */
static int put_gate(rank_t* self, const on_device_t* on, mirror_t* word) {
  PASS_ON(open_mirror(self, on, word, sizeof(float)));
  if (self->rank == self->size - 1) usleep(20000);
  CHECK_OK(self,
           dsc_all_reduce(self->world, word->at, word->at, 1, DSC_DTYPE_F32, DSC_OP_MAX, on->stream, NULL));
  return 0;
}

/* The plan is destroyed before the device has used it. */
static int chain_body(rank_t* self) {
  const int misuses = gpu_misuses();
  for (size_t layer = 0; layer < 4; ++layer)
    for (int starts = 0; starts < 2; ++starts) {
      on_device_t on = {.starts = starts == 1, .layer = layer};
      mirror_t tokens = {0}, word = {0};
      PASS_ON(open_chain(self, &on, &tokens, layer));
      PASS_ON(put_gate(self, &on, &word));
      PASS_ON(put_chain(self, &on, tokens.at));
      CHECK_OK(self, dsc_moe_plan_destroy(on.it.plan));
      on.it.plan = NULL;
      CHECK(self, gpu_synchronize(on.stream));
      PASS_ON(compare(self, &on, &on.rows, on.it.rows, "rows"));
      PASS_ON(compare(self, &on, &on.out, on.it.out, "output"));
      CHECK(self, gpu_misuses() == misuses);
      gpu_free(word.base);
      gpu_free(tokens.base);
      PASS_ON(close_layer(self, &on));
    }
  return 0;
}

static void nobody_waits(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, chain_body, NULL), 0);
}

/* Several calls of one plan are in progress at the same time. */
static int overlap_body(rank_t* self) {
  on_device_t on = {.starts = true, .layer = 3};
  dsc_work_t* works[2] = {NULL, NULL};
  PASS_ON(open_layer(self, &on, &layers[on.layer], on.layer));
  moe_layer_t* const it = &on.it;
  const dsc_moe_payload_t plain = DSC_MOE_PAYLOAD_PLAIN;
  const size_t hidden = it->sizes.hidden;
  const dsc_dtype_t dtype = it->sizes.dtype;
  CHECK_OK(self, dsc_moe_dispatch(it->plan, it->own->values, hidden, dtype, plain, it->rows, NULL, NULL));
  CHECK_OK(self,
           dsc_moe_dispatch(it->plan, it->gradient, hidden, dtype, plain, it->row_gradients, NULL, NULL));
  PASS_ON(put(self, &on.tokens, it->own->values));
  PASS_ON(put(self, &on.gradient, it->gradient));
  CHECK_OK(self,
           dsc_moe_dispatch(it->plan, on.tokens.at, hidden, dtype, plain, on.rows.at, on.stream, &works[0]));
  CHECK_OK(self, dsc_moe_dispatch(it->plan, on.gradient.at, hidden, dtype, plain, on.row_gradients.at,
                                  on.stream, &works[1]));
  for (int i = 2; i-- > 0;) {
    CHECK_OK(self, dsc_work_wait(works[i], -1, NULL));
    CHECK_OK(self, dsc_work_destroy(works[i]));
  }
  CHECK(self, gpu_synchronize(NULL));
  PASS_ON(compare(self, &on, &on.rows, it->rows, "rows"));
  PASS_ON(compare(self, &on, &on.row_gradients, it->row_gradients, "row gradients"));
  return close_layer(self, &on);
}

static void several_at_once(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, overlap_body, NULL), 0);
}

/* A capture before the kernels are loaded is refused. */
static int early_capture(rank_t* self) {
  on_device_t on = {0};
  PASS_ON(open_layer(self, &on, &layers[0], 0));
  CHECK(self, gpu_begin_capture(on.stream));
  PASS_ON(check_refusal(self,
                        dsc_moe_dispatch(on.it.plan, on.tokens.at, on.it.sizes.hidden, DSC_DTYPE_F32,
                                         DSC_MOE_PAYLOAD_PLAIN, on.rows.at, on.stream, NULL),
                        DSC_ERR_STATE, "expected one such call before the capture"));
  gpu_graph_free(gpu_end_capture(on.stream));
  PASS_ON(both_passes(self, &on, true, true));
  return close_layer(self, &on);
}

/* A graph that runs twice. The plan is used on the device for the first time during the capture. */
static int graph_body(rank_t* self) {
  PASS_ON(early_capture(self));
  for (int starts = 0; starts < 2; ++starts) {
    on_device_t on = {.starts = starts == 1};
    mirror_t tokens;
    PASS_ON(open_chain(self, &on, &tokens, 4));
    CHECK(self, gpu_begin_capture(on.stream));
    PASS_ON(put_chain(self, &on, tokens.at));
    void* const graph = gpu_end_capture(on.stream);
    CHECK(self, graph != NULL);
    for (int run = 0; run < 2; ++run) {
      PASS_ON(fill(self, &on.out, 0x55));
      CHECK(self, gpu_run_graph(graph, on.stream) && gpu_synchronize(on.stream));
      PASS_ON(compare(self, &on, &on.out, on.it.out, "output"));
    }
    gpu_graph_free(graph);
    gpu_free(tokens.base);
    PASS_ON(close_layer(self, &on));
  }
  return 0;
}

static void captured(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, graph_body, NULL), 0);
}

/* ---- what is refused */

static int refused_arrays(rank_t* self, on_device_t* on) {
  moe_layer_t* const it = &on->it;
  dsc_moe_plan_t* const plan = it->plan;
  const dsc_moe_payload_t plain = DSC_MOE_PAYLOAD_PLAIN;
  const size_t hidden = it->sizes.hidden;
  const dsc_dtype_t f32 = DSC_DTYPE_F32;
  PASS_ON(check_refusal(self, dsc_moe_dispatch(plan, on->tokens.at, hidden, f32, plain, it->rows, NULL, NULL),
                        DSC_ERR_INVALID_ARG,
                        "tokens is in device memory and rows is in host memory, expected the same"));
  PASS_ON(check_refusal(
      self, dsc_moe_dispatch(plan, it->own->values, hidden, f32, plain, on->rows.at, on->stream, NULL),
      DSC_ERR_INVALID_ARG, "tokens is in host memory and rows is in device memory, expected the same"));
  PASS_ON(check_refusal(
      self,
      dsc_moe_combine(plan, on->expert_rows.at, it->weights, hidden, f32, on->out.at, NULL, on->stream, NULL),
      DSC_ERR_INVALID_ARG, "weights is in host memory, expected the same kind of memory"));
  PASS_ON(check_refusal(self,
                        dsc_moe_combine(plan, on->expert_rows.at, NULL, hidden, f32, on->out.at, it->returned,
                                        on->stream, NULL),
                        DSC_ERR_INVALID_ARG, "returned is in host memory, expected the same"));
  PASS_ON(
      check_refusal(self,
                    dsc_moe_combine_backward(plan, on->gradient.at, on->weights.at, on->returned.at, hidden,
                                             f32, on->row_gradients.at, it->weight_gradients, NULL, NULL),
                    DSC_ERR_INVALID_ARG, "weight_gradients is in host memory, expected the same"));
  PASS_ON(check_refusal(self,
                        dsc_moe_dispatch(plan, on->tokens.at, hidden, f32, DSC_MOE_PAYLOAD_F8E4M3,
                                         on->rows.at, on->stream, NULL),
                        DSC_ERR_UNSUPPORTED, "rows are in device memory, expected payload 1 (plain)"));
  PASS_ON(check_refusal(
      self, dsc_moe_dispatch(plan, on->tokens.at + 2, hidden, f32, plain, on->rows.at, on->stream, NULL),
      DSC_ERR_INVALID_ARG, "expected an address that is a multiple of 4"));
  return check_refusal(self,
                       dsc_moe_dispatch(plan, on->rows.at, hidden, f32, plain, on->rows.at, on->stream, NULL),
                       DSC_ERR_INVALID_ARG, "rows and tokens overlap, expected separate memory");
}

static int refused_choice(rank_t* self, on_device_t* on) {
  dsc_moe_plan_options_t options;
  dsc_moe_plan_t* plan = NULL;
  CHECK_OK(self, dsc_moe_plan_options_init(&options, sizeof options));
  options.experts = 2;
  return check_refusal(
      self, dsc_moe_plan_create(self->world, &options, (const int32_t*)(void*)on->tokens.at, 1, NULL, &plan),
      DSC_ERR_UNSUPPORTED, ", expected host memory");
}

/* Other ranks notice none of these errors, and the plan still works. */
static int refusals_body(rank_t* self) {
  on_device_t on = {0};
  PASS_ON(open_layer(self, &on, &layers[0], 9));
  PASS_ON(refused_arrays(self, &on));
  PASS_ON(refused_choice(self, &on));
  CHECK_OK(self, dsc_batch_begin(self->world));
  PASS_ON(check_refusal(self,
                        dsc_moe_dispatch(on.it.plan, on.tokens.at, on.it.sizes.hidden, DSC_DTYPE_F32,
                                         DSC_MOE_PAYLOAD_PLAIN, on.rows.at, on.stream, NULL),
                        DSC_ERR_STATE, "a batch is open"));
  CHECK_OK(self, dsc_batch_end(self->world, NULL, NULL));
  PASS_ON(both_passes(self, &on, true, true));
  return close_layer(self, &on);
}

static void wrong_inputs(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, refusals_body, NULL), 0);
}

/* Rank 0 has rows of another size, or in host memory. The rank that calls second gets the error immediately.
 */
static int mismatch(rank_t* self, bool is_of_host) {
  on_device_t on = {0};
  dsc_work_t* work = NULL;
  PASS_ON(open_layer(self, &on, &layers[0], 2));
  const bool differs = self->rank == 0;
  const void* const tokens = differs && is_of_host ? on.it.own->values : on.tokens.at;
  void* const rows = differs && is_of_host ? on.it.rows : on.rows.at;
  const size_t hidden = differs && !is_of_host ? on.it.sizes.hidden / 2 : on.it.sizes.hidden;
  dsc_result_t result = dsc_moe_dispatch(on.it.plan, tokens, hidden, DSC_DTYPE_F32, DSC_MOE_PAYLOAD_PLAIN,
                                         rows, on.stream, &work);
  if (result == DSC_OK) result = dsc_work_wait(work, -1, NULL);
  if (result == DSC_OK) result = dsc_work_synchronize(work, -1);
  PASS_ON(check_refusal(self, result, DSC_ERR_MISMATCH, is_of_host ? "in host memory" : "hidden 4"));
  if (work) CHECK_OK(self, dsc_work_destroy(work));
  return close_layer(self, &on);
}

static int other_size_body(rank_t* self) { return mismatch(self, false); }

static int other_memory_body(rank_t* self) { return mismatch(self, true); }

static void ranks_that_differ(void** state) {
  (void)state;
  if (getenv("DSC_TEST_HOSTS") != NULL) skip(); /* calls on devices are only compared within a host */
  assert_int_equal(run_ranks(2, other_size_body, NULL), 0);
  assert_int_equal(run_ranks(2, other_memory_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_on_the_host), cmocka_unit_test(nobody_waits), cmocka_unit_test(several_at_once),
      cmocka_unit_test(captured),       cmocka_unit_test(wrong_inputs), cmocka_unit_test(ranks_that_differ),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
