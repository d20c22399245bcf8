/* The exchange of sequence and heads, compared with its definition. The ring of blocks: the order of the
 * blocks, the sums of gradients, and failed passes. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmocka_c.h"
#include "gpu.h"
#include "map_calls.h"
#include "ranks.h"

enum { MOST_RANKS = 4, GUARD_BYTES = 64, GUARD = 0x5a };

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

/* ---- sequence and heads */

typedef enum { PLAIN, SHARED, DEVICE } memory_t;

typedef struct shape {
  size_t batch, sequence, heads, head_dim;
  bool uneven_sequence, uneven_heads;
} shape_t;

typedef struct exchange {
  const rank_t* self;
  shape_t shape;
  direction_t direction;
  size_t element;
  size_t tokens[MOST_RANKS], heads[MOST_RANKS]; /* the parts of each rank */
} exchange_t;

typedef struct rooms {
  char *in, *out;
  size_t bytes;
} rooms_t;

/* If `uneven`, rank 0 gets nothing and the last rank gets the most. */
static void divide(size_t total, int32_t ranks, bool uneven, size_t* parts) {
  size_t rest = total;
  for (int32_t r = 0; r < ranks; ++r) {
    parts[r] = uneven && ranks > 1 ? (size_t)r : total / (size_t)ranks;
    if (r + 1 == ranks) parts[r] = rest;
    rest -= parts[r];
  }
}

static size_t before(const size_t* parts, int32_t rank) {
  size_t sum = 0;
  for (int32_t r = 0; r < rank; ++r) sum += parts[r];
  return sum;
}

/* Returns byte `part` of an element of the whole tensor. */
static char content(size_t batch, size_t token, size_t head, size_t at, size_t part) {
  return (char)((batch * 31 + token * 7 + head * 13 + at * 3 + part * 101) % 113);
}

/* Fills one rank's part: its tokens with all heads, or its heads with all tokens. Returns the bytes. */
static size_t fill(const exchange_t* e, char* at, bool by_sequence) {
  const int32_t rank = e->self->rank;
  const size_t token = by_sequence ? before(e->tokens, rank) : 0;
  const size_t tokens = by_sequence ? e->tokens[rank] : e->shape.sequence;
  const size_t head = by_sequence ? 0 : before(e->heads, rank);
  const size_t heads = by_sequence ? e->shape.heads : e->heads[rank];
  char* start = at;
  for (size_t b = 0; b < e->shape.batch; ++b)
    for (size_t t = token; t < token + tokens; ++t)
      for (size_t h = head; h < head + heads; ++h)
        for (size_t d = 0; d < e->shape.head_dim; ++d)
          for (size_t part = 0; part < e->element; ++part) *at++ = content(b, t, h, d, part);
  return (size_t)(at - start);
}

static int call(const exchange_t* e, dsc_dtype_t dtype, const rooms_t* rooms, bool async) {
  dsc_work_t* work = NULL;
  const shape_t* s = &e->shape;
  CHECK_OK((rank_t*)e->self,
           exchange_heads(e->self->world, e->direction, rooms->in, rooms->out, s->batch, s->sequence,
                          s->heads, s->head_dim, s->uneven_sequence ? e->tokens : NULL,
                          s->uneven_heads ? e->heads : NULL, dtype, NULL, async ? &work : NULL));
  if (!async) return 0;
  CHECK_OK((rank_t*)e->self, dsc_work_synchronize(work, RANKS_TIMEOUT_MS));
  CHECK_OK((rank_t*)e->self, dsc_work_destroy(work));
  return 0;
}

static int check_exchange(rank_t* self, exchange_t* e, dsc_dtype_t dtype, memory_t memory,
                          const rooms_t* rooms, bool async) {
  char *in = malloc(rooms->bytes), *out = malloc(rooms->bytes), *wanted = malloc(rooms->bytes);
  memset(out, GUARD, rooms->bytes);
  memset(wanted, GUARD, rooms->bytes);
  const bool forward = e->direction == FORWARD;
  const size_t in_bytes = fill(e, in, forward), out_bytes = fill(e, wanted, !forward);
  CHECK(self, in_bytes <= rooms->bytes && out_bytes + GUARD_BYTES <= rooms->bytes);
  if (memory == DEVICE)
    CHECK(self, gpu_upload(rooms->in, in, rooms->bytes) && gpu_upload(rooms->out, out, rooms->bytes));
  if (memory != DEVICE) memcpy(rooms->in, in, in_bytes), memcpy(rooms->out, out, rooms->bytes);
  PASS_ON(call(e, dtype, rooms, async));
  if (memory == DEVICE) CHECK(self, gpu_synchronize(NULL) && gpu_download(out, rooms->out, rooms->bytes));
  if (memory != DEVICE) memcpy(out, rooms->out, rooms->bytes);
  if (memcmp(out, wanted, out_bytes + GUARD_BYTES) != 0)
    FAIL(self, "direction %d, [%zu, %zu%s, %zu%s, %zu], memory %d: other elements", e->direction,
         e->shape.batch, e->shape.sequence, e->shape.uneven_sequence ? " uneven" : "", e->shape.heads,
         e->shape.uneven_heads ? " uneven" : "", e->shape.head_dim, memory);
  free(in), free(out), free(wanted);
  return 0;
}

static int check_shape(rank_t* self, const shape_t* shape, const rooms_t* rooms, int* turn) {
  static const dsc_dtype_t dtypes[] = {DSC_DTYPE_F32, DSC_DTYPE_BF16, DSC_DTYPE_F64};
  static const size_t bytes[] = {4, 2, 8};
  exchange_t e = {self, *shape, FORWARD, 0, {0}, {0}};
  divide(shape->sequence, self->size, shape->uneven_sequence, e.tokens);
  divide(shape->heads, self->size, shape->uneven_heads, e.heads);
  for (; e.direction <= BACKWARD; ++e.direction)
    for (memory_t memory = PLAIN; memory <= DEVICE; ++memory, ++*turn) {
      if (rooms[memory].in == NULL) continue;
      e.element = bytes[*turn % 3];
      PASS_ON(check_exchange(self, &e, dtypes[*turn % 3], memory, &rooms[memory], *turn % 4 == 1));
    }
  return 0;
}

static int exchanges_body(rank_t* self) {
  static const shape_t shapes[] = {
      {2, 12, 12, 3, false, false}, {1, 12, 24, 1, false, false},  {3, 24, 12, 5, false, false},
      {2, 13, 12, 3, true, false},  {2, 12, 13, 3, false, true},   {3, 11, 7, 4, true, true},
      {0, 12, 12, 3, false, false}, {2, 12, 12, 0, false, false},  {2, 240, 24, 16, false, false},
      {3, 151, 20, 24, true, true}, {1, 600, 12, 20, false, false}};
  const size_t bytes = (size_t)2 << 20;
  void* shared = NULL;
  CHECK_OK(self, dsc_mem_alloc(self->world, 2 * bytes, DSC_MEMORY_KIND_HOST, &shared));
  rooms_t rooms[] = {{malloc(bytes), malloc(bytes), bytes}, {shared, (char*)shared + bytes, bytes}, {0}};
  if (gpu_wanted()) rooms[DEVICE] = (rooms_t){gpu_alloc(bytes), gpu_alloc(bytes), bytes};
  if (gpu_wanted() && (rooms[DEVICE].in == NULL || rooms[DEVICE].out == NULL))
    FAIL(self, "%s", gpu_trouble());
  int turn = 0;
  for (size_t s = 0; s < LENGTH(shapes); ++s) PASS_ON(check_shape(self, &shapes[s], rooms, &turn));
  free(rooms[PLAIN].in), free(rooms[PLAIN].out);
  gpu_free(rooms[DEVICE].in), gpu_free(rooms[DEVICE].out);
  CHECK_OK(self, dsc_mem_free(shared));
  return 0;
}

static void exchanges_are_their_definition(void** state) {
  (void)state;
  for (int32_t size = 1; size <= MOST_RANKS; ++size)
    assert_int_equal(run_ranks(size, exchanges_body, NULL), 0);
}

/* Checks that the last error message of this thread contains `text`. */
static int says(rank_t* self, const char* text) {
  if (strstr(dsc_last_error_message(), text) == NULL)
    FAIL(self, "expected '%s' in '%s'", text, dsc_last_error_message());
  return 0;
}

static int other_heads_body(rank_t* self) {
  float in[64] = {0}, out[64] = {0};
  out[0] = 7;
  const size_t heads = self->rank == 0 ? 4 : 2, sequence = self->rank == 0 ? 2 : 4;
  CHECK_RESULT(self, DSC_ERR_MISMATCH,
               exchange_heads(self->world, FORWARD, in, out, 2, sequence, heads, 3, NULL, NULL, DSC_DTYPE_F32,
                              NULL, NULL));
  PASS_ON(says(self, "to heads, [2, 2, 4, 3]"));
  PASS_ON(says(self, "to heads, [2, 4, 2, 3]"));
  CHECK(self, out[0] == 7);
  return 0;
}

static void other_heads_are_a_mismatch(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, other_heads_body, NULL), 0);
}

/* ---- ring */

enum { LONGEST = 30000 };

typedef struct pass {
  dsc_ring_t* ring;
  size_t counts[MOST_RANKS];
  dsc_dtype_t grad_dtype; /* 0 (no gradients), f32 or f64 */
  int leave_at;           /* the pass is left after this step; -1: it is completed */
} pass_t;

static float key(int32_t rank, size_t i) { return (float)((size_t)rank * 1000 + i % 997); }

/* Returns what rank `by` adds to element i of the gradients of rank `to`'s block. */
static float gradient(int32_t by, int32_t to, size_t i) {
  return (float)(((size_t)by * 5 + (size_t)to * 3 + i) % 17);
}

static void add(const rank_t* self, const pass_t* pass, int32_t source, void* grad) {
  for (size_t i = 0; i < pass->counts[source]; ++i) {
    const float more = gradient(self->rank, source, i);
    if (pass->grad_dtype == DSC_DTYPE_F64) ((double*)grad)[i] += (double)more;
    if (pass->grad_dtype == DSC_DTYPE_F32) ((float*)grad)[i] += more;
  }
}

static int check_step(rank_t* self, const pass_t* pass, int step) {
  int32_t source = -2;
  const void* block = NULL;
  void* grad = NULL;
  size_t count = 0;
  dsc_result_t result = DSC_IN_PROGRESS;
  while (result == DSC_IN_PROGRESS)
    result = dsc_ring_next(pass->ring, step % 2 == 1 ? 3 : -1, &source, &block, &count, &grad);
  CHECK_OK(self, result);
  if (step == self->size) {
    CHECK(self, source == -1 && block == NULL && count == 0 && grad == NULL);
    return 0;
  }
  CHECK(self, source == (self->rank - step + self->size) % self->size && count == pass->counts[source]);
  CHECK(self, (grad != NULL) == (pass->grad_dtype != 0));
  for (size_t i = 0; i < count; ++i)
    if (((const float*)block)[i] != key(source, i)) FAIL(self, "step %d: another block", step);
  if (grad != NULL) add(self, pass, source, grad);
  return 0;
}

static int check_sums(rank_t* self, const pass_t* pass, const void* sums) {
  for (size_t i = 0; i < pass->counts[self->rank]; ++i) {
    float wanted = 0;
    for (int32_t by = 0; by < self->size; ++by) wanted += gradient(by, self->rank, i);
    const double found =
        pass->grad_dtype == DSC_DTYPE_F64 ? ((const double*)sums)[i] : (double)((const float*)sums)[i];
    if (found != (double)wanted) FAIL(self, "element %zu is %g, expected %g", i, found, (double)wanted);
  }
  return 0;
}

static int go_around(rank_t* self, const pass_t* pass) {
  const size_t count = pass->counts[self->rank];
  float* block = malloc(count * sizeof *block + 1);
  double* sums = malloc(count * sizeof *sums + 1);
  for (size_t i = 0; i < count; ++i) block[i] = key(self->rank, i);
  bool even = true;
  for (int32_t r = 0; r < self->size; ++r) even = even && pass->counts[r] == count;
  CHECK_OK(self, dsc_ring_begin(pass->ring, block, count, even ? NULL : pass->counts, DSC_DTYPE_F32,
                                pass->grad_dtype == 0 ? NULL : sums, pass->grad_dtype, NULL));
  for (int step = 0; step <= self->size; ++step) {
    PASS_ON(check_step(self, pass, step));
    if (step == pass->leave_at) break;
  }
  if (pass->leave_at < 0 && pass->grad_dtype != 0) PASS_ON(check_sums(self, pass, sums));
  /* A pass that was left early still moves data. The next begin waits for it. */
  if (pass->leave_at >= 0) {
    CHECK_OK(self, dsc_ring_begin(pass->ring, NULL, 0, NULL, DSC_DTYPE_F32, NULL, 0, NULL));
    pass_t empty = {pass->ring, {0}, 0, -1};
    for (int step = 0; step <= self->size; ++step) PASS_ON(check_step(self, &empty, step));
  }
  free(block), free(sums);
  return 0;
}

static int ring_body(rank_t* self) {
  static const size_t counts[][MOST_RANKS] = {
      {5, 5, 5, 5}, {3, 0, 7, 1}, {LONGEST, LONGEST, LONGEST, LONGEST}, {0, 0, 0, 0}, {1, LONGEST, 12, 4000}};
  pass_t pass = {NULL, {0}, 0, -1};
  CHECK_OK(self, dsc_ring_create(self->world, LONGEST * sizeof(float), LONGEST * sizeof(double), &pass.ring));
  for (size_t c = 0; c < LENGTH(counts); ++c)
    for (int kind = 0; kind < 3; ++kind) {
      memcpy(pass.counts, counts[c], sizeof pass.counts);
      pass.grad_dtype = kind == 0 ? 0 : kind == 1 ? DSC_DTYPE_F32 : DSC_DTYPE_F64;
      pass.leave_at = -1;
      PASS_ON(go_around(self, &pass));
      pass.leave_at = (int)c % self->size;
      PASS_ON(go_around(self, &pass));
    }
  CHECK_OK(self, dsc_ring_destroy(pass.ring));
  return 0;
}

static void every_block_comes_by(void** state) {
  (void)state;
  for (int32_t size = 1; size <= MOST_RANKS; ++size) assert_int_equal(run_ranks(size, ring_body, NULL), 0);
}

/* While the ranks compute without calling the library, the next block arrives. */
static int overlap_body(rank_t* self) {
  dsc_ring_t* ring = NULL;
  float* block = calloc(LONGEST, sizeof *block);
  CHECK_OK(self, dsc_ring_create(self->world, LONGEST * sizeof *block, 0, &ring));
  CHECK_OK(self, dsc_ring_begin(ring, block, LONGEST, NULL, DSC_DTYPE_F32, NULL, 0, NULL));
  int32_t source = 0;
  const void* data = NULL;
  size_t count = 0;
  for (int32_t step = 0; step < self->size; ++step) {
    CHECK_OK(self, dsc_ring_next(ring, 0, &source, &data, &count, NULL));
    CHECK(self, source == (self->rank - step + self->size) % self->size);
    PASS_ON(ranks_meet(self));
    const struct timespec computing = {1, 0};
    nanosleep(&computing, NULL);
  }
  CHECK_OK(self, dsc_ring_destroy(ring));
  free(block);
  return 0;
}

static void blocks_travel_during_the_computation(void** state) {
  (void)state;
  assert_int_equal(run_ranks(3, overlap_body, NULL), 0);
}

/* ---- errors */

static int other_sizes_body(rank_t* self) {
  dsc_ring_t* ring = NULL;
  CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_ring_create(self->world, 64, self->rank == 0 ? 0 : 32, &ring));
  PASS_ON(says(self, "64 bytes, grad 0"));
  PASS_ON(says(self, "64 bytes, grad 32"));
  CHECK(self, ring == NULL);
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL)); /* the communicator still works */
  return 0;
}

static int other_counts_body(rank_t* self) {
  dsc_ring_t* ring = NULL;
  const float block[4] = {0};
  CHECK_OK(self, dsc_ring_create(self->world, sizeof block, 0, &ring));
  const size_t counts[] = {2, self->rank == 0 ? 3 : 4};
  CHECK_RESULT(self, DSC_ERR_MISMATCH,
               dsc_ring_begin(ring, block, counts[self->rank], counts, DSC_DTYPE_F32, NULL, 0, NULL));
  PASS_ON(says(self, "[2+3] f32"));
  PASS_ON(says(self, "[2+4] f32"));
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_ring_begin(ring, block, 1, NULL, DSC_DTYPE_F32, NULL, 0, NULL));
  CHECK_OK(self, dsc_ring_destroy(ring));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL)); /* only the ring is revoked */
  return 0;
}

/* One rank leaves a pass one step later than the other. Nothing more arrives, and no rank hangs. */
static int other_end_body(rank_t* self) {
  dsc_ring_t* ring = NULL;
  const float block[4] = {0};
  CHECK_OK(self, dsc_ring_create(self->world, sizeof block, 0, &ring));
  CHECK_OK(self, dsc_ring_begin(ring, block, 4, NULL, DSC_DTYPE_F32, NULL, 0, NULL));
  int32_t source = 0;
  const void* data = NULL;
  size_t count = 0;
  for (int i = 0; i < 1 + self->rank; ++i)
    CHECK_OK(self, dsc_ring_next(ring, -1, &source, &data, &count, NULL));
  CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_ring_begin(ring, block, 4, NULL, DSC_DTYPE_F32, NULL, 0, NULL));
  PASS_ON(says(self, "left at 0"));
  PASS_ON(says(self, "left at 1"));
  CHECK_OK(self, dsc_ring_destroy(ring));
  return 0;
}

/* If a rank destroys its ring in the middle of a pass, the pass of the waiting rank ends with an error. */
static int early_destroy_body(rank_t* self) {
  dsc_ring_t* ring = NULL;
  float* block = calloc(LONGEST, sizeof *block);
  CHECK_OK(self, dsc_ring_create(self->world, LONGEST * sizeof *block, 0, &ring));
  CHECK_OK(self, dsc_ring_begin(ring, block, LONGEST, NULL, DSC_DTYPE_F32, NULL, 0, NULL));
  /* a rank that begins after the other rank's ring has ended would already fail in ring_begin */
  PASS_ON(ranks_meet(self));
  if (self->rank != 0) {
    int32_t source = 0;
    const void* data = NULL;
    size_t count = 0;
    dsc_result_t result = DSC_OK;
    while (result == DSC_OK && source >= 0) result = dsc_ring_next(ring, -1, &source, &data, &count, NULL);
    CHECK_RESULT(self, result == DSC_ERR_PEER_LEFT ? result : DSC_ERR_REVOKED, result);
  }
  CHECK_OK(self, dsc_ring_destroy(ring));
  free(block);
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  return 0;
}

static void passes_that_fail(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, other_sizes_body, NULL), 0);
  assert_int_equal(run_ranks(2, other_counts_body, NULL), 0);
  assert_int_equal(run_ranks(2, other_end_body, NULL), 0);
  assert_int_equal(run_ranks(3, early_destroy_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exchanges_are_their_definition),
      cmocka_unit_test(other_heads_are_a_mismatch),
      cmocka_unit_test(every_block_comes_by),
      cmocka_unit_test(blocks_travel_during_the_computation),
      cmocka_unit_test(passes_that_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
