/* What only devices have: device memory, streams, and combinations of arguments that are not allowed. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_c.h"
#include "gpu.h"
#include "ranks.h"

enum { COUNT = 5000, BYTES = COUNT * sizeof(float) };

static int check_equal(rank_t* self, const float* memory, float expected) {
  float came[COUNT];
  CHECK(self, gpu_download(came, memory, BYTES));
  for (int i = 0; i < COUNT; ++i)
    if (came[i] != expected)
      FAIL(self, "element %d is %g, expected %g", i, (double)came[i], (double)expected);
  return 0;
}

static int fill(rank_t* self, float* memory, float value) {
  float values[COUNT];
  for (int i = 0; i < COUNT; ++i) values[i] = value;
  CHECK(self, gpu_upload(memory, values, BYTES));
  return 0;
}

static dsc_result_t sum(dsc_comm_t* comm, const float* send, float* recv, void* stream, dsc_work_t** work) {
  return dsc_all_reduce(comm, send, recv, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, stream, work);
}

static int memory_body(rank_t* self) {
  void* memory = NULL;
  CHECK_OK(self, dsc_mem_alloc(self->world, BYTES, DSC_MEMORY_KIND_DEVICE, &memory));
  PASS_ON(check_equal(self, memory, 0));
  PASS_ON(fill(self, memory, 1));
  CHECK_OK(self, sum(self->world, memory, memory, NULL, NULL));
  PASS_ON(check_equal(self, memory, (float)self->size));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_mem_free((char*)memory + 4));
  CHECK_OK(self, dsc_mem_free(memory));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_mem_free(memory));
  if (self->size == 1) return 0;
  const size_t bytes = self->rank == 0 ? 64 : 128;
  CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_mem_alloc(self->world, bytes, DSC_MEMORY_KIND_DEVICE, &memory));
  CHECK(self, memory == NULL);
  return 0;
}

static void memory_of_devices(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, memory_body, NULL), 0);
}

/* Only this rank gets the error, before other ranks are involved. */
static int buffers_body(rank_t* self) {
  float here[COUNT] = {0};
  const char* why = NULL;
  const int devices = gpu_count(&why);
  float* const data = gpu_alloc(BYTES);
  CHECK(self, data != NULL && gpu_bind((self->options.device + 1) % devices));
  float* const elsewhere = gpu_alloc(BYTES);
  CHECK(self, elsewhere != NULL && gpu_bind(self->options.device));
  CHECK_OK(self,
           /* after this no rank waits for the default stream of another rank */
           dsc_barrier(self->world, NULL, NULL));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, sum(self->world, here, data, NULL, NULL));
  CHECK(self,
        strstr(dsc_last_error_message(), "send is in host memory and recv is in device memory") != NULL);
  if (devices > 1) {
    CHECK_RESULT(self, DSC_ERR_INVALID_ARG, sum(self->world, elsewhere, elsewhere, NULL, NULL));
    CHECK(self, strstr(dsc_last_error_message(), "but this world is bound to device") != NULL);
  }
  CHECK_OK(self, dsc_batch_begin(self->world));
  CHECK_OK(self, sum(self->world, data, data, NULL, NULL));
  CHECK_OK(self, sum(self->world, here, here, NULL, NULL));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_batch_end(self->world, NULL, NULL));
  PASS_ON(fill(self, data, 2));
  CHECK_OK(self, sum(self->world, data, data, NULL, NULL)); /* no call has had an effect so far */
  PASS_ON(check_equal(self, data, 2 * (float)self->size));
  int32_t device = -1, backend = -1;
  CHECK_OK(self, dsc_comm_device(self->world, &device));
  CHECK_OK(self, dsc_comm_backend(self->world, &backend));
  CHECK(self, device == self->options.device && backend == DSC_BACKEND_DEVICE);
  gpu_free(data);
  gpu_free(elsewhere);
  return 0;
}

static void buffers_that_do_not_go_together(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, buffers_body, NULL), 0);
}

static int refused_at(rank_t* self, char* send, char* recv, int32_t dtype, const char* words) {
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
               dsc_all_reduce(self->world, send, recv, 3, dtype, DSC_OP_SUM, NULL, NULL));
  if (strstr(dsc_last_error_message(), words) == NULL)
    FAIL(self, "said \"%s\", expected \"%s\"", dsc_last_error_message(), words);
  return 0;
}

/* Sums of elements that are larger than a byte need aligned memory. Sums of bytes, and moves of any type, do
 * not. */
static int alignment_body(rank_t* self) {
  char* const data = gpu_alloc(256);
  CHECK(self, data != NULL);
  PASS_ON(refused_at(self, data + 2, data + 128, DSC_DTYPE_F32, "send is 2 bytes past a multiple of 4"));
  PASS_ON(refused_at(self, data, data + 129, DSC_DTYPE_BF16, "recv is 1 byte past a multiple of 2"));
  PASS_ON(refused_at(self, data + 12, data + 12, DSC_DTYPE_F64, "send is 4 bytes past a multiple of 8"));
  dsc_work_t* work = NULL;
  const int32_t op = DSC_OP_MAX;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG,
               dsc_reduce_scatter(self->world, data + 1, data + 64, 3, DSC_DTYPE_I32, op, NULL, &work));
  CHECK_OK(self, dsc_batch_begin(self->world));
  CHECK_OK(self, dsc_all_reduce(self->world, data, data, 3, DSC_DTYPE_F32, op, NULL, NULL));
  CHECK_OK(self, dsc_all_reduce(self->world, data + 65, data + 65, 3, DSC_DTYPE_F32, op, NULL, NULL));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_batch_end(self->world, NULL, NULL));
  const unsigned char bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, none[12] = {0};
  unsigned char came[12];
  CHECK(self, gpu_upload(data + 3, self->rank == 0 ? bytes : none, sizeof bytes));
  CHECK_OK(self, dsc_all_reduce(self->world, data + 3, data + 3, 12, DSC_DTYPE_U8, DSC_OP_SUM, NULL, NULL));
  CHECK_OK(self, dsc_broadcast(self->world, data + 3, data + 21, 3, DSC_DTYPE_F32, 0, NULL, NULL));
  CHECK(self, gpu_download(came, data + 21, sizeof came) && memcmp(came, bytes, sizeof came) == 0);
  gpu_free(data);
  return 0;
}

static void reductions_want_aligned_elements(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, alignment_body, NULL), 0);
}

/* Two operations on streams of the library and one on the caller's stream, each ordered after the previous
 * one. */
static int streams_body(rank_t* self) {
  void* const stream = gpu_stream();
  float* const data = gpu_alloc(BYTES);
  CHECK(self, stream != NULL && data != NULL);
  float expected = 1;
  PASS_ON(fill(self, data, 1));
  for (int i = 0; i < 20; ++i) {
    dsc_work_t* work = NULL;
    CHECK_OK(self, sum(self->world, data, data, stream, &work));
    CHECK_OK(self, dsc_work_wait(work, 0, stream));
    CHECK_OK(self, dsc_work_destroy(work));
    CHECK_OK(self, dsc_all_reduce(self->world, data, data, COUNT, DSC_DTYPE_F32, DSC_OP_AVG, stream, NULL));
    expected *= (float)self->size;
  }
  CHECK(self, gpu_synchronize(stream));
  PASS_ON(check_equal(self, data, expected));
  dsc_comm_options_t options;
  dsc_comm_t* group = NULL;
  CHECK_OK(self, dsc_comm_options_init(&options, sizeof options));
  const dsc_setting_t setting = {"nccl.max_ctas", "4"};
  options.settings = &setting;
  options.n_settings = 1;
  options.stream_priority = -1;
  CHECK_OK(self, dsc_comm_split(self->world, 0, -self->rank, &options, &group));
  CHECK_OK(self, dsc_broadcast(group, data, data, COUNT, DSC_DTYPE_F32, self->size - 1, stream, NULL));
  CHECK_OK(self, dsc_barrier(group, stream, NULL));
  CHECK(self, gpu_synchronize(stream));
  CHECK_OK(self, dsc_comm_finalize(group));
  CHECK_OK(self, dsc_comm_destroy(group));
  gpu_free(data);
  gpu_stream_free(stream);
  return 0;
}

static void streams_keep_their_order(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, streams_body, NULL), 0);
}

/* Rank 0 leaves the group immediately. Rank 1 later calls an operation of both ranks. */
static int leaving_body(rank_t* self) {
  dsc_comm_t* group = NULL;
  float* const data = gpu_alloc(BYTES);
  CHECK(self, data != NULL);
  PASS_ON(fill(self, data, 1));
  CHECK_OK(self, dsc_comm_split(self->world, 0, 0, NULL, &group));
  if (self->rank == 1) usleep(300000);
  CHECK_OK(self, sum(group, data, data, NULL, NULL));
  CHECK_OK(self, dsc_comm_destroy(group));
  CHECK(self, gpu_synchronize(NULL));
  PASS_ON(check_equal(self, data, (float)self->size));
  gpu_free(data);
  return 0;
}

static void who_leaves_has_done_its_part(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, leaving_body, NULL), 0);
}

/* Uses more factors than a communicator keeps. */
static int factors_body(rank_t* self) {
  float* const data = gpu_alloc(BYTES);
  CHECK(self, data != NULL);
  for (int i = 0; i < 40; ++i) {
    const double factor = 1 + i % 20 / 8.0;
    dsc_op_t op = 0;
    PASS_ON(fill(self, data, 2));
    CHECK_OK(self, dsc_op_create_premul(factor, &op));
    CHECK_OK(self, dsc_all_reduce(self->world, data, data, COUNT, DSC_DTYPE_F32, op, NULL, NULL));
    CHECK_OK(self, dsc_op_destroy(op));
    PASS_ON(check_equal(self, data, (float)(2 * factor * self->size)));
  }
  gpu_free(data);
  return 0;
}

static void factors_come_and_go(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, factors_body, NULL), 0);
}

enum { SCALED = 777, SCALED_RANKS = 3 };

/* The numbers 1 and 1.5. The latter is half of the sum of three ones. */
typedef struct scaled {
  dsc_dtype_t dtype;
  size_t bytes;
  uint64_t one, result;
} scaled_t;

static const scaled_t scaled_types[] = {
    {DSC_DTYPE_F16, 2, 0x3c00, 0x3e00},
    {DSC_DTYPE_BF16, 2, 0x3f80, 0x3fc0},
    {DSC_DTYPE_F32, 4, 0x3f800000, 0x3fc00000},
    {DSC_DTYPE_F64, 8, 0x3ff0000000000000, 0x3ff8000000000000},
};

static void write_scaled(char* bytes, const scaled_t* type, uint64_t value, size_t count) {
  for (size_t i = 0; i < count; ++i) memcpy(bytes + i * type->bytes, &value, type->bytes);
}

/* Calls one of three operations: with form 0 all_reduce in place, with 1 reduce to the last rank, with 2
 * reduce_scatter. */
static dsc_result_t call_scaled(rank_t* self, int form, char* send, char* recv, dsc_dtype_t dtype,
                                dsc_op_t op, void* stream, dsc_work_t** work) {
  if (form == 0) return dsc_all_reduce(self->world, recv, recv, SCALED, dtype, op, stream, work);
  if (form == 1) return dsc_reduce(self->world, send, recv, SCALED, dtype, op, self->size - 1, stream, work);
  return dsc_reduce_scatter(self->world, send, recv, SCALED, dtype, op, stream, work);
}

static int check_scaled(rank_t* self, const scaled_t* type, int form, char* device, void* stream,
                        dsc_op_t op) {
  enum { MOST = SCALED * 8 * SCALED_RANKS };
  char ones[MOST], came[SCALED * 8], expected[SCALED * 8];
  char* const recv = device + MOST;
  write_scaled(ones, type, type->one, (size_t)SCALED * SCALED_RANKS);
  const bool has_result = form != 1 || self->rank == self->size - 1;
  write_scaled(expected, type, has_result ? type->result : type->one, SCALED);
  CHECK(self, gpu_upload(device, ones, MOST) && gpu_upload(recv, ones, SCALED * type->bytes));
  dsc_work_t* work = NULL;
  const dsc_result_t called = call_scaled(self, form, device, recv, type->dtype, op, stream, &work);
  CHECK_OK(self, called);
  CHECK_OK(self, dsc_work_synchronize(work, -1));
  CHECK_OK(self, dsc_work_destroy(work));
  CHECK(self, gpu_download(came, recv, SCALED * type->bytes));
  if (memcmp(came, expected, SCALED * type->bytes) != 0)
    FAIL(self, "%s, form %d: other bits than half of the sum", dsc_dtype_name(type->dtype), form);
  return 0;
}

static int scaled_body(rank_t* self) {
  char* const device = gpu_alloc(2 * SCALED * 8 * SCALED_RANKS);
  void* const stream = gpu_stream();
  dsc_op_t op = 0;
  CHECK(self, device != NULL && stream != NULL);
  CHECK_OK(self, dsc_op_create_premul(0.5, &op));
  for (size_t i = 0; i < sizeof scaled_types / sizeof *scaled_types; ++i)
    for (int form = 0; form < 3; ++form)
      PASS_ON(check_scaled(self, &scaled_types[i], form, device, form == 1 ? stream : NULL, op));
  static const dsc_dtype_t none[] = {DSC_DTYPE_F8E4M3, DSC_DTYPE_F8E5M2, DSC_DTYPE_I32, DSC_DTYPE_U8};
  for (size_t i = 0; i < 4; ++i)
    CHECK_RESULT(self, DSC_ERR_UNSUPPORTED, call_scaled(self, 0, device, device, none[i], op, NULL, NULL));
  CHECK_OK(self, dsc_op_destroy(op));
  gpu_stream_free(stream);
  gpu_free(device);
  return 0;
}

static void factors_are_for_floating_types(void** state) {
  (void)state;
  assert_int_equal(run_ranks(SCALED_RANKS, scaled_body, NULL), 0);
}

static int32_t never_called(void* context, const dsc_op_call_t* call) {
  (void)context, (void)call;
  return 1;
}

/* Only this rank gets the error, with a reason, and the call has no effect. */
static int not_offered_body(rank_t* self) {
  float* const data = gpu_alloc(BYTES);
  dsc_op_t own = 0;
  CHECK(self, data != NULL);
  PASS_ON(fill(self, data, 1));
  CHECK_OK(self, dsc_op_create_user(never_called, NULL, 1, 1, &own));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED,
               dsc_all_reduce(self->world, data, data, COUNT, DSC_DTYPE_F32, own, NULL, NULL));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED,
               dsc_all_reduce(self->world, data, data, COUNT, DSC_DTYPE_I32, DSC_OP_BAND, NULL, NULL));
  CHECK_OK(self, dsc_op_destroy(own));
  CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_FAIL));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED, sum(self->world, data, data, NULL, NULL));
  CHECK_OK(self, dsc_comm_set_nonfinite_check(self->world, DSC_NONFINITE_CHECK_OFF));
  CHECK_OK(self, sum(self->world, data, data, NULL, NULL));
  PASS_ON(check_equal(self, data, (float)self->size));
  gpu_free(data);
  return 0;
}

static void what_is_not_offered_is_refused(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_ranks(size, not_offered_body, NULL), 0);
}

/* The call would have to wait for the other end. Only this rank gets the error, and the call has no effect.
 */
static int first_message_body(rank_t* self) {
  void* const stream = gpu_stream();
  float* const data = gpu_alloc(BYTES);
  CHECK(self, data != NULL && stream != NULL);
  if (self->rank == 0) {
    CHECK(self, gpu_begin_capture(stream));
    dsc_work_t* work = NULL;
    CHECK_RESULT(self, DSC_ERR_STATE, dsc_send(self->world, data, COUNT, DSC_DTYPE_F32, 1, stream, &work));
    CHECK_RESULT(self, DSC_ERR_STATE, dsc_send(self->world, data, COUNT, DSC_DTYPE_F32, 1, stream, NULL));
    gpu_graph_free(gpu_end_capture(stream));
    PASS_ON(fill(self, data, 3));
    CHECK_OK(self, dsc_send(self->world, data, COUNT, DSC_DTYPE_F32, 1, stream, NULL));
  } else {
    CHECK_OK(self, dsc_recv(self->world, data, COUNT, DSC_DTYPE_F32, 0, stream, NULL));
  }
  CHECK(self, gpu_synchronize(stream));
  PASS_ON(check_equal(self, data, 3));
  gpu_free(data);
  gpu_stream_free(stream);
  return 0;
}

static void a_first_message_is_not_captured(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, first_message_body, NULL), 0);
}

/* Cross entropy is computed on the host. Device memory is refused before other ranks can notice the call. */
static int cross_entropy_body(rank_t* self) {
  float logits[4] = {0}, loss[2] = {0};
  const int64_t targets[2] = {0, 1};
  double state[4] = {0};
  float* const data = gpu_alloc(BYTES);
  CHECK(self, data != NULL);
  const size_t vocab = 2 * (size_t)self->size;
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED,
               dsc_vocab_cross_entropy_forward(self->world, data, targets, 2, vocab, DSC_DTYPE_F32, NULL,
                                               loss, state));
  CHECK(self, strstr(dsc_last_error_message(), "logits is in memory of device ") != NULL);
  CHECK(self, strstr(dsc_last_error_message(), ", expected host memory") != NULL);
  CHECK_OK(self, dsc_vocab_cross_entropy_forward(self->world, logits, targets, 2, vocab, DSC_DTYPE_F32, NULL,
                                                 loss, state));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED,
               dsc_vocab_cross_entropy_backward(self->world, logits, targets, 2, vocab, DSC_DTYPE_F32, NULL,
                                                state, NULL, data));
  CHECK(self, strstr(dsc_last_error_message(), "gradient is in memory of device ") != NULL);
  gpu_free(data);
  return 0;
}

static void cross_entropy_is_for_the_host(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, cross_entropy_body, NULL), 0);
}

/* RMSNorm with its all-reduce also refuses device memory, for each of its arrays. */
static int rms_norm_body(rank_t* self) {
  static const char* const names[] = {"input", "residual", "weight", "residual_out", "output"};
  float rows[5][4] = {{1, 2, 3, 4}};
  float* const data = gpu_alloc(BYTES);
  CHECK(self, data != NULL);
  for (int wrong = 0; wrong < 6; ++wrong) {
    float* at[5];
    for (int i = 0; i < 5; ++i) at[i] = i == wrong ? data : rows[i];
    const dsc_result_t expected = wrong < 5 ? DSC_ERR_UNSUPPORTED : DSC_OK;
    CHECK_RESULT(
        self, expected,
        dsc_all_reduce_rms_norm(self->world, at[0], at[1], at[2], 1, 4, DSC_DTYPE_F32, 1e-5, at[3], at[4]));
    if (wrong == 5) break;
    char text[64];
    snprintf(text, sizeof text, ": %s is in memory of device ", names[wrong]);
    CHECK(self, strstr(dsc_last_error_message(), text) != NULL);
  }
  gpu_free(data);
  return 0;
}

static void rms_norm_is_for_the_host(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, rms_norm_body, NULL), 0);
}

/* Tokens are exchanged between host memory, even if ranks are bound to devices. */
int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_of_devices),
      cmocka_unit_test(cross_entropy_is_for_the_host),
      cmocka_unit_test(rms_norm_is_for_the_host),
      cmocka_unit_test(buffers_that_do_not_go_together),
      cmocka_unit_test(reductions_want_aligned_elements),
      cmocka_unit_test(streams_keep_their_order),
      cmocka_unit_test(who_leaves_has_done_its_part),
      cmocka_unit_test(factors_come_and_go),
      cmocka_unit_test(factors_are_for_floating_types),
      cmocka_unit_test(what_is_not_offered_is_refused),
      cmocka_unit_test(a_first_message_is_not_captured),
  };
  return cmocka_run_group_tests_name("gpu_calls", tests, NULL, NULL);
}
