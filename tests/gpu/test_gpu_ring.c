/* The ring of blocks on devices: the same results as on the host, in stream order, with a wait only at the
 * end. Failures of passes are tested below. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_c.h"
#include "gpu.h"
#include "ranks.h"

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

enum { MOST_RANKS = 3, LONGEST = 30000, QUICKLY_MS = 15000 };

/* Sums of whole numbers up to 51 in f32 and f64, so that every order gives the same result. */
static float key(int32_t rank, size_t i) { return (float)((size_t)rank * 1000 + i % 997); }
static float gradient(int32_t by, int32_t to, size_t i) {
  return (float)(((size_t)by * 5 + (size_t)to * 3 + i) % 17);
}

typedef struct pass {
  dsc_ring_t* ring;
  size_t counts[MOST_RANKS];
  dsc_dtype_t grad_dtype; /* 0 (no gradients), f32 or f64 */
  int steps;              /* the pass is left after this step; size + 1: it is completed */
  void* stream;
} pass_t;

/* The memory of one rank on its device for a pass. */
typedef struct rooms {
  char *block, *grad;
  char *added[MOST_RANKS], *came[MOST_RANKS]; /* by rank */
} rooms_t;

static size_t grad_bytes(const pass_t* pass) { return pass->grad_dtype == DSC_DTYPE_F64 ? 8 : 4; }

static void put(const pass_t* pass, void* all, size_t i, float value) {
  if (pass->grad_dtype == DSC_DTYPE_F64)
    ((double*)all)[i] = (double)value;
  else
    ((float*)all)[i] = value;
}

static int open_rooms(rank_t* self, const pass_t* pass, rooms_t* rooms) {
  const size_t bytes = (size_t)LONGEST * sizeof(double);
  char* here = malloc(bytes);
  rooms->block = gpu_alloc(bytes), rooms->grad = gpu_alloc(bytes);
  for (size_t i = 0; i < LONGEST; ++i) ((float*)here)[i] = key(self->rank, i);
  CHECK(self, rooms->block != NULL && rooms->grad != NULL && gpu_upload(rooms->block, here, bytes / 2));
  for (int32_t source = 0; source < self->size; ++source) {
    rooms->added[source] = gpu_alloc(bytes), rooms->came[source] = gpu_alloc(bytes);
    for (size_t i = 0; i < LONGEST; ++i) put(pass, here, i, gradient(self->rank, source, i));
    CHECK(self, rooms->came[source] != NULL && gpu_upload(rooms->added[source], here, bytes));
  }
  free(here);
  return 0;
}

static void close_rooms(rooms_t* rooms) {
  gpu_free(rooms->block), gpu_free(rooms->grad);
  for (int r = 0; r < MOST_RANKS; ++r) gpu_free(rooms->added[r]), gpu_free(rooms->came[r]);
}

static int begin(rank_t* self, const pass_t* pass, const rooms_t* rooms) {
  const size_t count = pass->counts[self->rank];
  bool even = true;
  for (int32_t r = 0; r < self->size; ++r) even = even && pass->counts[r] == count;
  CHECK_OK(self,
           dsc_ring_begin(pass->ring, count > 0 ? rooms->block : NULL, count, even ? NULL : pass->counts,
                          DSC_DTYPE_F32, count > 0 ? rooms->grad : NULL, pass->grad_dtype, pass->stream));
  return 0;
}

/* Puts the work that uses a step's block and gradients on the stream. The host does not wait. */
static int step(rank_t* self, const pass_t* pass, const rooms_t* rooms, int at) {
  int32_t source = -2;
  const void* block = NULL;
  void* grad = NULL;
  size_t count = 0;
  dsc_result_t result = DSC_IN_PROGRESS;
  while (result == DSC_IN_PROGRESS)
    result = dsc_ring_next(pass->ring, at % 2 == 1 ? 3 : -1, &source, &block, &count, &grad);
  CHECK_OK(self, result);
  if (at == self->size) {
    CHECK(self, source == -1 && block == NULL && count == 0 && grad == NULL);
    return 0;
  }
  CHECK(self, source == (self->rank - at + self->size) % self->size && count == pass->counts[source]);
  if (count == 0) return 0;
  CHECK(self, gpu_copy(rooms->came[source], block, count * sizeof(float), pass->stream));
  /* The gradients are zeros, and the last element of each block is not changed. */
  if (grad != NULL)
    CHECK(self, gpu_copy(grad, rooms->added[source], (count - 1) * grad_bytes(pass), pass->stream));
  return 0;
}

static int check_blocks(rank_t* self, const pass_t* pass, const rooms_t* rooms) {
  float* here = malloc(LONGEST * sizeof *here);
  for (int at = 0; at < self->size && at < pass->steps; ++at) {
    const int32_t source = (self->rank - at + self->size) % self->size;
    const size_t count = pass->counts[source];
    CHECK(self, gpu_download(here, rooms->came[source], count * sizeof *here));
    for (size_t i = 0; i < count; ++i)
      if (here[i] != key(source, i)) FAIL(self, "step %d, element %zu: another block", at, i);
  }
  free(here);
  return 0;
}

static int check_sums(rank_t* self, const pass_t* pass, const rooms_t* rooms) {
  const size_t count = pass->counts[self->rank];
  char *here = malloc(count * 8 + 1), *wanted = malloc(count * 8 + 1);
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int32_t by = 0; by < self->size && i + 1 < count; ++by) sum += gradient(by, self->rank, i);
    put(pass, wanted, i, sum);
  }
  CHECK(self, gpu_download(here, rooms->grad, count * grad_bytes(pass)));
  if (memcmp(here, wanted, count * grad_bytes(pass)) != 0) FAIL(self, "other sums");
  free(here), free(wanted);
  return 0;
}

static int go_around(rank_t* self, const pass_t* pass) {
  rooms_t rooms = {0};
  PASS_ON(open_rooms(self, pass, &rooms));
  PASS_ON(begin(self, pass, &rooms));
  for (int at = 0; at < pass->steps; ++at) PASS_ON(step(self, pass, &rooms, at));
  CHECK_OK(self, dsc_ring_synchronize(pass->ring, -1));
  PASS_ON(check_blocks(self, pass, &rooms));
  if (pass->steps <= self->size) { /* data still moves in this memory until another pass has begun */
    const pass_t empty = {pass->ring, {0}, 0, 0, pass->counts[0] % 2 == 0 ? pass->stream : NULL};
    PASS_ON(begin(self, &empty, &rooms));
    CHECK_OK(self, dsc_ring_synchronize(pass->ring, -1));
  } else if (pass->grad_dtype != 0) {
    PASS_ON(check_sums(self, pass, &rooms));
  }
  close_rooms(&rooms);
  return 0;
}

/* Passes of all kinds follow each other on two streams. */
static int ring_body(rank_t* self) {
  static const size_t counts[][MOST_RANKS] = {
      {5, 5, 5}, {3, 0, 7}, {LONGEST, LONGEST, LONGEST}, {0, 0, 0}, {1, LONGEST, 12}};
  static const dsc_dtype_t types[] = {0, DSC_DTYPE_F32, DSC_DTYPE_F64};
  void* const streams[] = {gpu_stream(), gpu_stream()};
  pass_t pass = {NULL, {0}, 0, 0, NULL};
  CHECK_OK(self, dsc_ring_create(self->world, LONGEST * sizeof(float), LONGEST * sizeof(double), &pass.ring));
  for (size_t c = 0; c < LENGTH(counts); ++c)
    for (size_t t = 0; t < LENGTH(types); ++t)
      for (int kind = 0; kind < 2; ++kind) {
        memcpy(pass.counts, counts[c], sizeof pass.counts);
        pass.grad_dtype = types[t];
        pass.steps = kind == 0 ? self->size + 1 : 1 + (int)c % self->size;
        pass.stream = streams[(c + t) % 2];
        PASS_ON(go_around(self, &pass));
      }
  CHECK_OK(self, dsc_ring_destroy(pass.ring));
  gpu_stream_free(streams[0]), gpu_stream_free(streams[1]);
  return 0;
}

static void every_block_comes_by(void** state) {
  (void)state;
  for (int32_t size = 1; size <= MOST_RANKS; ++size) assert_int_equal(run_ranks(size, ring_body, NULL), 0);
}

/* ---- failures */

enum { COUNT = 1000, BYTES = COUNT * sizeof(float) };

static int says(rank_t* self, const char* text) {
  if (strstr(dsc_last_error_message(), text) == NULL)
    FAIL(self, "expected '%s' in '%s'", text, dsc_last_error_message());
  return 0;
}

static int open_ring(rank_t* self, dsc_ring_t** ring, float** data) {
  *data = gpu_alloc(BYTES);
  CHECK(self, *data != NULL);
  CHECK_OK(self, dsc_ring_create(self->world, BYTES, BYTES, ring));
  return 0;
}

static dsc_result_t begin_plain(dsc_ring_t* ring, const void* data) {
  return dsc_ring_begin(ring, data, COUNT, NULL, DSC_DTYPE_F32, NULL, 0, NULL);
}

static dsc_result_t next_plain(dsc_ring_t* ring, int32_t* source) {
  const void* block = NULL;
  size_t count = 0;
  return dsc_ring_next(ring, -1, source, &block, &count, NULL);
}

static dsc_result_t finish_plain(dsc_ring_t* ring) {
  int32_t source = 0;
  dsc_result_t result = DSC_OK;
  while (result == DSC_OK && source >= 0) result = next_plain(ring, &source);
  return result;
}

/* Only this rank gets the error, before other ranks are involved. */
static int refusals_body(rank_t* self) {
  dsc_ring_t* ring = NULL;
  float *data = NULL, here[COUNT] = {0};
  PASS_ON(open_ring(self, &ring, &data));
  float* const grad = gpu_alloc(BYTES);
  const dsc_dtype_t f32 = DSC_DTYPE_F32, i32 = DSC_DTYPE_I32;
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_ring_begin(ring, data, COUNT, NULL, f32, here, f32, NULL));
  PASS_ON(says(self, "block is in device memory and grad is in host memory"));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_ring_begin(ring, here, COUNT, NULL, f32, grad, f32, NULL));
  PASS_ON(says(self, "block is in host memory and grad is in device memory"));
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED, dsc_ring_begin(ring, data, COUNT, NULL, f32, grad, i32, NULL));
  PASS_ON(says(self, "grad_dtype is i32, expected a floating-point type"));
  CHECK_OK(self, begin_plain(ring, data));
  int32_t source = 0;
  const void* block = NULL;
  size_t count = 0;
  CHECK_OK(self, dsc_ring_next(ring, -1, &source, &block, &count, NULL));
  CHECK_OK(self, dsc_ring_next(ring, -1, &source, &block, &count, NULL));
  if (self->size > 1) {
    CHECK_RESULT(self, DSC_ERR_INVALID_ARG, begin_plain(ring, block));
    PASS_ON(says(self, "block is in memory that the ring owns"));
    CHECK_OK(self, finish_plain(ring));
  }
  CHECK_OK(self, dsc_ring_destroy(ring));
  gpu_free(data), gpu_free(grad);
  return 0;
}

/* A capture is refused on this rank only, even in the middle of a pass, and the pass continues afterwards. */
static int capture_body(rank_t* self) {
  dsc_ring_t* ring = NULL;
  float* data = NULL;
  void* const stream = gpu_stream();
  int32_t source = 7;
  PASS_ON(open_ring(self, &ring, &data));
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(self, gpu_begin_capture(stream));
    if (turn == 0)
      CHECK_RESULT(self, DSC_ERR_STATE,
                   dsc_ring_begin(ring, data, COUNT, NULL, DSC_DTYPE_F32, NULL, 0, stream));
    else
      CHECK_RESULT(self, DSC_ERR_STATE, next_plain(ring, &source));
    PASS_ON(says(self, "captured"));
    if (turn == 1) CHECK_RESULT(self, DSC_ERR_STATE, dsc_ring_synchronize(ring, 0));
    gpu_graph_free(gpu_end_capture(stream));
    if (turn == 0) CHECK_OK(self, dsc_ring_begin(ring, data, COUNT, NULL, DSC_DTYPE_F32, NULL, 0, stream));
  }
  CHECK(self, source == 7);
  CHECK_OK(self, finish_plain(ring));
  CHECK_OK(self, dsc_ring_synchronize(ring, -1));
  CHECK_OK(self, dsc_ring_destroy(ring));
  gpu_free(data);
  gpu_stream_free(stream);
  return 0;
}

/* All ranks get the error. The ring is unusable, but the communicator still works. */
static int mismatch_body(rank_t* self) {
  float here[COUNT] = {0}, *data = NULL;
  for (int other_memory = 0; other_memory < 2; ++other_memory) {
    dsc_ring_t* ring = NULL;
    PASS_ON(open_ring(self, &ring, &data));
    const size_t count = self->rank == 0 || other_memory ? COUNT : COUNT - 1;
    CHECK_RESULT(self, DSC_ERR_MISMATCH,
                 dsc_ring_begin(ring, other_memory && self->rank == 1 ? here : data, count, NULL,
                                DSC_DTYPE_F32, NULL, 0, NULL));
    PASS_ON(says(self, other_memory ? "f32 on a device" : "1998"));
    CHECK_RESULT(self, DSC_ERR_REVOKED, begin_plain(ring, data));
    CHECK(self, dsc_ring_synchronize(ring, -1) != DSC_OK);
    CHECK_OK(self, dsc_ring_destroy(ring));
    CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
    gpu_free(data);
  }
  return 0;
}

/* Rank 0 leaves when it has its results. Rank 1 leaves later, when its device has them. */
static int quick_destroy_body(rank_t* self) {
  dsc_ring_t* ring = NULL;
  float* data = NULL;
  PASS_ON(open_ring(self, &ring, &data));
  CHECK_OK(self, begin_plain(ring, data));
  CHECK_OK(self, finish_plain(ring));
  if (self->rank != 0) usleep(100000);
  if (self->rank != 0) CHECK_OK(self, dsc_ring_synchronize(ring, -1));
  CHECK_OK(self, dsc_ring_destroy(ring));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  gpu_free(data);
  return 0;
}

/* Rank 0 destroys its ring in the middle of a pass. The other ranks get an error, and all streams become
 * idle. */
static int early_destroy_body(rank_t* self) {
  dsc_ring_t* ring = NULL;
  float* data = NULL;
  PASS_ON(open_ring(self, &ring, &data));
  dsc_result_t result = begin_plain(ring, data);
  CHECK(self, result == DSC_OK || self->rank != 0);
  if (self->rank != 0) {
    if (result == DSC_OK) result = finish_plain(ring);
    if (result == DSC_OK) result = dsc_ring_synchronize(ring, -1);
    CHECK_RESULT(self, result == DSC_ERR_PEER_LEFT ? result : DSC_ERR_REVOKED, result);
  }
  CHECK_OK(self, dsc_ring_destroy(ring));
  CHECK(self, gpu_synchronize(NULL));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  gpu_free(data);
  return 0;
}

static void impatient(rank_t* self) { self->options.timeout_ms = 3000; }

/* Rank 1 begins a second pass but makes no step of it, or does not begin it. */
static int missing_body(rank_t* self) {
  const bool begins = self->arg != NULL;
  dsc_ring_t* ring = NULL;
  float* data = NULL;
  PASS_ON(open_ring(self, &ring, &data));
  CHECK_OK(self, begin_plain(ring, data));
  CHECK_OK(self, finish_plain(ring));
  CHECK_OK(self, dsc_ring_synchronize(ring, -1));
  if (self->rank == 1) {
    if (begins) CHECK_OK(self, begin_plain(ring, data));
    PASS_ON(ranks_meet(self));
    CHECK_OK(self, dsc_ring_destroy(ring));
    gpu_free(data);
    return 0;
  }
  const int64_t start = now_ms();
  dsc_result_t result = begin_plain(ring, data);
  CHECK(self, !begins || result == DSC_OK);
  if (result == DSC_OK) result = finish_plain(ring);
  while (result >= DSC_OK && now_ms() - start < QUICKLY_MS) result = dsc_ring_synchronize(ring, 10);
  if (result != DSC_ERR_TIMEOUT && result != DSC_ERR_REVOKED)
    FAIL(self, "%d: %s", result, dsc_last_error_message());
  if (result == DSC_ERR_TIMEOUT) PASS_ON(says(self, "rank"));
  CHECK(self, now_ms() - start < QUICKLY_MS && gpu_synchronize(NULL));
  CHECK_OK(self, dsc_ring_destroy(ring));
  gpu_free(data);
  return ranks_meet(self);
}

static void passes_that_fail(void** state) {
  (void)state;
  assert_int_equal(run_ranks(1, refusals_body, NULL), 0);
  assert_int_equal(run_ranks(2, refusals_body, NULL), 0);
  assert_int_equal(run_ranks(2, capture_body, NULL), 0);
  assert_int_equal(run_ranks(2, mismatch_body, NULL), 0);
  assert_int_equal(run_ranks(3, quick_destroy_body, NULL), 0);
  assert_int_equal(run_ranks(3, early_destroy_body, NULL), 0);
  assert_int_equal(run_ranks_with(2, impatient, missing_body, NULL), 0);
  assert_int_equal(run_ranks_with(3, impatient, missing_body, "begins"), 0);
}

/* Rank 1 of 3 dies in the middle of a pass. */
static int killed_body(rank_t* self) {
  dsc_ring_t* ring = NULL;
  float* data = NULL;
  int32_t source = 0;
  PASS_ON(open_ring(self, &ring, &data));
  CHECK_OK(self, begin_plain(ring, data));
  CHECK_OK(self, finish_plain(ring));
  dsc_result_t result = begin_plain(ring, data);
  if (self->rank == 1) CHECK_OK(self, next_plain(ring, &source));
  if (self->rank == 1) kill(getpid(), SIGKILL);
  const int64_t start = now_ms();
  if (result == DSC_OK) result = finish_plain(ring);
  while (result >= DSC_OK && now_ms() - start < QUICKLY_MS) result = dsc_ring_synchronize(ring, 10);
  CHECK(self, result == DSC_ERR_PEER_DEAD);
  PASS_ON(says(self, "rank 1"));
  CHECK_OK(self, dsc_ring_destroy(ring));
  CHECK(self, gpu_synchronize(NULL));
  return 0;
}

/* CUDA fails on rank 0, which copies more, in the middle of its passes. All ranks get an error soon. */
static int broken_body(rank_t* self) {
  dsc_ring_t* ring = NULL;
  float *data = NULL, *grad = gpu_alloc(BYTES);
  PASS_ON(open_ring(self, &ring, &data));
  const int64_t start = now_ms();
  dsc_result_t result = DSC_OK;
  for (int i = 0; i < 100 && self->rank == 0; ++i) CHECK(self, gpu_upload(data, &i, sizeof i));
  for (int pass = 0; pass < 1000 && result == DSC_OK; ++pass) {
    int32_t source = 0;
    const void* block = NULL;
    void* added = NULL;
    size_t count = 0;
    result = dsc_ring_begin(ring, data, COUNT, NULL, DSC_DTYPE_F32, grad, DSC_DTYPE_F32, NULL);
    while (result == DSC_OK && source >= 0) result = dsc_ring_next(ring, -1, &source, &block, &count, &added);
  }
  while (result >= DSC_OK && now_ms() - start < QUICKLY_MS) result = dsc_ring_synchronize(ring, 10);
  CHECK(self, result < 0 && now_ms() - start < QUICKLY_MS);
  /* A send of an earlier pass may be what failed. The next pass then finds the group revoked, and says why.
   */
  if (self->rank == 0 && result == DSC_ERR_REVOKED) PASS_ON(says(self, "FAKE_CUDA_ERROR"));
  if (self->rank == 0 && result != DSC_ERR_BACKEND && result != DSC_ERR_REVOKED)
    FAIL(self, "%d: %s", result, dsc_last_error_message());
  CHECK_OK(self, dsc_ring_destroy(ring));
  return dsc_comm_abort(self->world) != DSC_OK; /* rank 0 could not finalize it */
}

static void little_memory(rank_t* self) {
  if (self->rank == 0) setenv("FAKE_CUDA_MEMORY_MIB", "1", 1);
}

/* One rank has no memory for the ring. All ranks get an error, and the ring then works in host memory. */
static int memory_body(rank_t* self) {
  dsc_ring_t* ring = NULL;
  float *const data = gpu_alloc(BYTES), here[COUNT] = {0};
  CHECK_OK(self, dsc_ring_create(self->world, 1 << 20, 0, &ring));
  for (int turn = 0; turn < 2; ++turn) {
    CHECK_RESULT(self, DSC_ERR_BACKEND, begin_plain(ring, data));
    PASS_ON(says(self, "rank 0"));
    int32_t source = 0;
    CHECK_RESULT(self, DSC_ERR_STATE, next_plain(ring, &source));
  }
  CHECK_OK(self, begin_plain(ring, here));
  CHECK_OK(self, finish_plain(ring));
  CHECK_OK(self, dsc_ring_destroy(ring));
  gpu_free(data);
  return 0;
}

static void processes_that_fail(void** state) {
  (void)state;
  if (!ranks_are_processes()) skip();
  assert_int_equal(run_ranks(3, killed_body, NULL), 1);
  if (gpu_is_real()) return;
  assert_int_equal(run_ranks_with(2, little_memory, memory_body, NULL), 0);
  setenv("FAKE_CUDA_STICKY_AT", "120", 1); /* counts the copies and launches of each rank */
  assert_int_equal(run_ranks(3, broken_body, NULL), 0);
  unsetenv("FAKE_CUDA_STICKY_AT");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_block_comes_by),
      cmocka_unit_test(passes_that_fail),
      cmocka_unit_test(processes_that_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
