/* Every mapping in both directions, compared with its definition: which element belongs where. Inputs are
 * small integers, so that sums are exact in every type. */
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "gpu.h"
#include "map_calls.h"
#include "ranks.h"
#include "reference.h"

enum { MOST_RANKS = 4, GUARD_BYTES = 64, GUARD = 0x5a };

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

/* The kind of memory of input and output. */
typedef enum { PLAIN, SHARED, DEVICE } memory_t;

/* The whole tensor is [outer, dim, inner]. Sequence and hidden mappings divide the first dimension, which has
 * the size `first`. For them `outer` is first x between. */
typedef struct shape {
  size_t first, between, dim, inner;
  bool uneven;
} shape_t;

/* One call, in the terms of the definition. */
typedef struct mapping {
  const rank_t* self;
  shape_t shape;
  dsc_tensor_mapping_t mapping;
  direction_t direction;
  dsc_dtype_t dtype;
  memory_t memory;
  bool async;
} mapping_t;

typedef enum { IDENTITY, SLICE, SUM, GATHER, SUM_SLICE, EXCHANGE, TO_HIDDEN, TO_SEQUENCE } step_t;

static step_t step_of(const mapping_t* m) {
  static const step_t steps[][2] = {{IDENTITY, SUM},      {SUM, IDENTITY},          {SLICE, GATHER},
                                    {GATHER, SLICE},      {GATHER, SUM_SLICE},      {SUM_SLICE, GATHER},
                                    {EXCHANGE, EXCHANGE}, {TO_HIDDEN, TO_SEQUENCE}, {TO_SEQUENCE, TO_HIDDEN}};
  return steps[m->mapping - DSC_TENSOR_MAPPING_COPY][m->direction - FORWARD];
}

/* ---- how sizes are divided; if uneven, rank 0 has nothing and the other ranks have unequal parts */

static size_t part_of(const mapping_t* m, size_t total, int32_t rank) {
  const size_t n = (size_t)m->self->size, r = (size_t)rank;
  if (!m->shape.uneven || n == 1) return total / n;
  if (r + 1 < n) return r;
  return total - (n - 1) * (n - 2) / 2;
}

static size_t start_of(const mapping_t* m, size_t total, int32_t rank) {
  size_t start = 0;
  for (int32_t r = 0; r < rank; ++r) start += part_of(m, total, r);
  return start;
}

static int32_t owner_of(const mapping_t* m, size_t total, size_t index) {
  int32_t rank = 0;
  while (index >= start_of(m, total, rank) + part_of(m, total, rank)) ++rank;
  return rank;
}

/* In an uneven exchange `from` sends this many elements to `to`, which receives the same number. */
static size_t sent(const mapping_t* m, int32_t from, int32_t to) {
  if (!m->shape.uneven) return m->shape.dim / (size_t)m->self->size;
  return m->direction == FORWARD ? (size_t)(2 * from + to) % 4 : (size_t)(2 * to + from) % 4;
}

/* ---- the value of an element */

static int value(int32_t rank, size_t outer, size_t dim, size_t inner) {
  return (int)(((size_t)rank * 7 + outer * 5 + dim * 3 + inner * 11) % 13) + 1;
}

static void store(void* at, size_t i, dsc_dtype_t dtype, int number) {
  const float single = (float)number;
  const double wide = number;
  const int64_t whole = number;
  const unsigned char byte = (unsigned char)number;
  if (dtype == DSC_DTYPE_F32) memcpy((float*)at + i, &single, sizeof single);
  if (dtype == DSC_DTYPE_F64) memcpy((double*)at + i, &wide, sizeof wide);
  if (dtype == DSC_DTYPE_I64) memcpy((int64_t*)at + i, &whole, sizeof whole);
  if (dtype == DSC_DTYPE_U8) memcpy((unsigned char*)at + i, &byte, sizeof byte);
  if (dtype == DSC_DTYPE_BF16) memcpy((uint16_t*)at + i, (const char*)&single + 2, 2);
}

/* The sizes of a buffer, and the position of its element (0, 0, 0) in the whole tensor. */
typedef struct extent {
  size_t outer, dim, from_outer, from_dim;
} extent_t;

static extent_t whole(const mapping_t* m) {
  return (extent_t){m->shape.first * m->shape.between, m->shape.dim, 0, 0};
}

static extent_t part_of_dim(const mapping_t* m) {
  extent_t e = whole(m);
  e.dim = part_of(m, m->shape.dim, m->self->rank);
  e.from_dim = start_of(m, m->shape.dim, m->self->rank);
  return e;
}

static extent_t part_of_outer(const mapping_t* m) {
  extent_t e = whole(m);
  e.outer = part_of(m, m->shape.first, m->self->rank) * m->shape.between;
  e.from_outer = start_of(m, m->shape.first, m->self->rank) * m->shape.between;
  return e;
}

static extent_t exchanged(const mapping_t* m, bool out) {
  extent_t e = whole(m);
  e.dim = 0;
  for (int32_t r = 0; r < m->self->size; ++r)
    e.dim += out ? sent(m, r, m->self->rank) : sent(m, m->self->rank, r);
  return e;
}

static extent_t extent_of(const mapping_t* m, bool out) {
  switch (step_of(m)) {
    case IDENTITY:
    case SUM:
      return whole(m);
    case SLICE:
    case SUM_SLICE:
      return out ? part_of_dim(m) : whole(m);
    case GATHER:
      return out ? whole(m) : part_of_dim(m);
    case EXCHANGE:
      return exchanged(m, out);
    case TO_HIDDEN:
      return out ? part_of_dim(m) : part_of_outer(m);
    default:
      return out ? part_of_outer(m) : part_of_dim(m);
  }
}

static int sum_of_ranks(const mapping_t* m, size_t outer, size_t dim, size_t inner) {
  int sum = 0;
  for (int32_t r = 0; r < m->self->size; ++r) sum += value(r, outer, dim, inner);
  return sum;
}

/* Returns what was sent by the rank whose block of an exchange has this element. */
static int exchanged_value(const mapping_t* m, size_t outer, size_t dim, size_t inner) {
  int32_t from = 0;
  while (dim >= sent(m, from, m->self->rank)) dim -= sent(m, from++, m->self->rank);
  for (int32_t r = 0; r < m->self->rank; ++r) dim += sent(m, from, r);
  return value(from, outer, dim, inner);
}

/* Returns the expected element of the output, given its position in the whole tensor. */
static int expected(const mapping_t* m, size_t outer, size_t dim, size_t inner) {
  switch (step_of(m)) {
    case SUM:
    case SUM_SLICE:
      return sum_of_ranks(m, outer, dim, inner);
    case GATHER:
    case TO_SEQUENCE:
      return value(owner_of(m, m->shape.dim, dim), outer, dim, inner);
    case TO_HIDDEN:
      return value(owner_of(m, m->shape.first, outer / m->shape.between), outer, dim, inner);
    case EXCHANGE:
      return exchanged_value(m, outer, dim, inner);
    default:
      return value(m->self->rank, outer, dim, inner);
  }
}

static size_t count_of(const mapping_t* m, const extent_t* e) { return e->outer * e->dim * m->shape.inner; }

static void fill(const mapping_t* m, char* at, const extent_t* e, bool is_result) {
  for (size_t o = 0; o < e->outer; ++o)
    for (size_t d = 0; d < e->dim; ++d)
      for (size_t i = 0; i < m->shape.inner; ++i) {
        const size_t outer = o + e->from_outer, dim = d + e->from_dim;
        store(at, (o * e->dim + d) * m->shape.inner + i, m->dtype,
              is_result ? expected(m, outer, dim, i) : value(m->self->rank, outer, dim, i));
      }
}

/* ---- the call */

static dsc_result_t call(const mapping_t* m, const void* in, void* out, dsc_work_t** work) {
  const shape_t* s = &m->shape;
  dsc_comm_t* const world = m->self->world;
  if (!s->uneven)
    return map_even(world, m->mapping, m->direction, in, out, s->first * s->between, s->dim, s->inner,
                    m->dtype, NULL, work);
  const bool divides_first = m->mapping == DSC_TENSOR_MAPPING_SEQUENCE_TO_HIDDEN ||
                             m->mapping == DSC_TENSOR_MAPPING_HIDDEN_TO_SEQUENCE;
  const bool exchanges = m->mapping == DSC_TENSOR_MAPPING_ALL_TO_ALL;
  const bool forward = m->direction == FORWARD;
  size_t parts[MOST_RANKS], other[MOST_RANKS];
  for (int32_t r = 0; r < m->self->size; ++r) {
    parts[r] = part_of(m, s->dim, r);
    other[r] = part_of(m, s->first, r);
    if (!exchanges) continue;
    parts[r] = forward ? sent(m, m->self->rank, r) : sent(m, r, m->self->rank);
    other[r] = forward ? sent(m, r, m->self->rank) : sent(m, m->self->rank, r);
  }
  return map_parts(world, m->mapping, m->direction, in, out,
                   divides_first ? s->between : s->first * s->between, parts,
                   divides_first || exchanges ? other : NULL, s->inner, m->dtype, NULL, work);
}

static int finish(rank_t* self, const mapping_t* m, dsc_work_t* work) {
  if (m->async) {
    CHECK_OK(self, dsc_work_synchronize(work, RANKS_TIMEOUT_MS));
    CHECK_OK(self, dsc_work_destroy(work));
  }
  if (m->memory == DEVICE && !gpu_synchronize(NULL)) FAIL(self, "%s", gpu_trouble());
  return 0;
}

/* Buffers for input and output of one kind of memory, each followed by a guard. */
typedef struct rooms {
  char *in, *out;
  size_t bytes;
} rooms_t;

static const char* const kNames[] = {"plain", "shared", "device"};

static int check_mapping(rank_t* self, const mapping_t* m, const rooms_t* rooms) {
  const extent_t from = extent_of(m, false), to = extent_of(m, true);
  const size_t element = element_bytes(m->dtype), in_bytes = count_of(m, &from) * element;
  const size_t out_bytes = count_of(m, &to) * element;
  const size_t in_all = in_bytes + GUARD_BYTES, out_all = out_bytes + GUARD_BYTES;
  CHECK(self, in_all <= rooms->bytes && out_all <= rooms->bytes);
  char *in = malloc(in_all), *out = malloc(out_all), *wanted = malloc(out_all);
  memset(in, GUARD, in_all);
  memset(out, GUARD, out_all);
  memset(wanted, GUARD, out_all);
  fill(m, in, &from, false);
  fill(m, wanted, &to, true);
  const bool on_device = m->memory == DEVICE;
  if (on_device) CHECK(self, gpu_upload(rooms->in, in, in_all) && gpu_upload(rooms->out, out, out_all));
  if (!on_device) memcpy(rooms->in, in, in_all), memcpy(rooms->out, out, out_all);
  dsc_work_t* work = NULL;
  CHECK_OK(self, call(m, rooms->in, rooms->out, m->async ? &work : NULL));
  PASS_ON(finish(self, m, work));
  if (on_device) CHECK(self, gpu_download(out, rooms->out, out_all));
  if (!on_device) memcpy(out, rooms->out, out_all);
  if (memcmp(out, wanted, out_all) != 0)
    FAIL(self, "mapping %d, direction %d, [%zu x %zu, %zu, %zu]%s, %s, %s memory: other elements", m->mapping,
         m->direction, m->shape.first, m->shape.between, m->shape.dim, m->shape.inner,
         m->shape.uneven ? " uneven" : "", dsc_dtype_name(m->dtype), kNames[m->memory]);
  free(in), free(out), free(wanted);
  return 0;
}

/* Returns whether the ranks can divide the first dimension, if the step does that. */
static bool is_possible(const mapping_t* m) {
  const size_t n = (size_t)m->self->size, first = m->shape.first;
  return step_of(m) < TO_HIDDEN || (m->shape.uneven ? first >= n * n : first % n == 0);
}

/* On a device a step that only copies has no work. */
static bool may_be_async(const mapping_t* m) {
  return m->memory != DEVICE || (step_of(m) != IDENTITY && step_of(m) != SLICE);
}

static int check_shape(rank_t* self, const shape_t* shape, const rooms_t rooms[3], int* turn) {
  static const dsc_dtype_t dtypes[] = {DSC_DTYPE_F32, DSC_DTYPE_U8, DSC_DTYPE_BF16, DSC_DTYPE_F64,
                                       DSC_DTYPE_I64};
  for (dsc_tensor_mapping_t mapping = DSC_TENSOR_MAPPING_COPY;
       mapping <= DSC_TENSOR_MAPPING_HIDDEN_TO_SEQUENCE; ++mapping)
    for (direction_t direction = FORWARD; direction <= BACKWARD; ++direction)
      for (memory_t memory = PLAIN; memory <= DEVICE; ++memory) {
        if (rooms[memory].in == NULL) continue;
        const dsc_dtype_t dtype = dtypes[(size_t)*turn % LENGTH(dtypes)];
        mapping_t m = {self, *shape, mapping, direction, dtype, memory, *turn % 3 == 1};
        m.async = m.async && may_be_async(&m);
        ++*turn;
        if (!is_possible(&m)) continue;
        PASS_ON(check_mapping(self, &m, &rooms[memory]));
      }
  return 0;
}

static int open_rooms(rank_t* self, rooms_t rooms[3], size_t bytes) {
  void* shared = NULL;
  CHECK_OK(self, dsc_mem_alloc(self->world, 2 * bytes, DSC_MEMORY_KIND_HOST, &shared));
  rooms[PLAIN] = (rooms_t){malloc(bytes), malloc(bytes), bytes};
  rooms[SHARED] = (rooms_t){shared, (char*)shared + bytes, bytes};
  rooms[DEVICE] = (rooms_t){NULL, NULL, bytes};
  if (!gpu_wanted()) return 0;
  rooms[DEVICE].in = gpu_alloc(bytes), rooms[DEVICE].out = gpu_alloc(bytes);
  if (rooms[DEVICE].in == NULL || rooms[DEVICE].out == NULL) FAIL(self, "%s", gpu_trouble());
  return 0;
}

static int close_rooms(rank_t* self, rooms_t rooms[3]) {
  free(rooms[PLAIN].in), free(rooms[PLAIN].out);
  CHECK_OK(self, dsc_mem_free(rooms[SHARED].in));
  gpu_free(rooms[DEVICE].in), gpu_free(rooms[DEVICE].out);
  return 0;
}

/* Sizes are multiples of 12, which 1 to 4 ranks divide. Large sizes go through several stages, or are read in
 * place. */
static int shapes_body(rank_t* self) {
  static const shape_t shapes[] = {{12, 1, 12, 1, false},  {1, 1, 12, 5, false},    {12, 3, 24, 7, false},
                                   {16, 1, 12, 1, true},   {1, 1, 13, 3, true},     {13, 2, 17, 4, true},
                                   {0, 1, 12, 3, false},   {12, 1, 240, 16, false}, {24, 2, 600, 6, false},
                                   {25, 2, 151, 20, true}, {12, 1, 2400, 10, false}};
  const size_t bytes = (size_t)3 << 20;
  rooms_t rooms[3];
  PASS_ON(open_rooms(self, rooms, bytes));
  int turn = 0;
  for (size_t s = 0; s < LENGTH(shapes); ++s) {
    if (test_scale() > 1 && s % 2 == 1 && s > 6) continue;
    PASS_ON(check_shape(self, &shapes[s], rooms, &turn));
  }
  return close_rooms(self, rooms);
}

static void every_mapping_is_its_definition(void** state) {
  (void)state;
  for (int32_t size = 1; size <= MOST_RANKS; ++size) assert_int_equal(run_ranks(size, shapes_body, NULL), 0);
}

/* ---- in chunks */

enum { MOST_CHUNKS = 7 };

/* Starts all chunks before it waits for the first one. Blocking chunks run one after another. */
static int take_chunks(rank_t* self, const mapping_t* m, const char* in, char* out, size_t chunks) {
  dsc_work_t* works[MOST_CHUNKS] = {NULL};
  const shape_t* s = &m->shape;
  for (size_t c = 0; c < chunks; ++c)
    CHECK_OK(self, map_chunk(self->world, m->mapping, m->direction, in, out, s->first, s->dim, s->inner, c,
                             chunks, m->dtype, NULL, m->async ? &works[c] : NULL));
  for (size_t c = 0; m->async && c < chunks; ++c) {
    CHECK_OK(self, dsc_work_synchronize(works[c], RANKS_TIMEOUT_MS));
    CHECK_OK(self, dsc_work_destroy(works[c]));
  }
  if (m->memory == DEVICE && !gpu_synchronize(NULL)) FAIL(self, "%s", gpu_trouble());
  return 0;
}

static int check_chunks(rank_t* self, const mapping_t* m, const rooms_t* rooms, size_t chunks) {
  const extent_t from = extent_of(m, false), to = extent_of(m, true);
  const size_t in_bytes = count_of(m, &from) * element_bytes(m->dtype);
  const size_t out_bytes = count_of(m, &to) * element_bytes(m->dtype);
  const size_t out_all = out_bytes + GUARD_BYTES;
  CHECK(self, in_bytes <= rooms->bytes && out_all <= rooms->bytes);
  char *in = malloc(in_bytes), *out = malloc(out_all), *wanted = malloc(out_all);
  memset(out, GUARD, out_all);
  memset(wanted, GUARD, out_all);
  fill(m, in, &from, false);
  fill(m, wanted, &to, true);
  const bool on_device = m->memory == DEVICE;
  if (on_device) CHECK(self, gpu_upload(rooms->in, in, in_bytes) && gpu_upload(rooms->out, out, out_all));
  if (!on_device) memcpy(rooms->in, in, in_bytes), memcpy(rooms->out, out, out_all);
  PASS_ON(take_chunks(self, m, rooms->in, rooms->out, chunks));
  if (on_device) CHECK(self, gpu_download(out, rooms->out, out_all));
  if (!on_device) memcpy(out, rooms->out, out_all);
  if (memcmp(out, wanted, out_all) != 0)
    FAIL(self, "mapping %d, direction %d, [%zu, %zu, %zu] in %zu chunks, %s memory: other elements",
         m->mapping, m->direction, m->shape.first, m->shape.dim, m->shape.inner, chunks, kNames[m->memory]);
  free(in), free(out), free(wanted);
  return 0;
}

static int chunks_body(rank_t* self) {
  static const shape_t shapes[] = {{1, 1, 24, 5, false}, {5, 1, 12, 3, false}, {1, 1, 12000, 8, false}};
  static const dsc_dtype_t dtypes[] = {DSC_DTYPE_F32, DSC_DTYPE_BF16, DSC_DTYPE_F64};
  rooms_t rooms[3];
  PASS_ON(open_rooms(self, rooms, (size_t)1 << 20));
  int turn = 0;
  for (size_t s = 0; s < LENGTH(shapes); ++s)
    for (dsc_tensor_mapping_t mapping = DSC_TENSOR_MAPPING_COPY; mapping <= DSC_TENSOR_MAPPING_REDUCE_SCATTER;
         ++mapping)
      for (direction_t direction = FORWARD; direction <= BACKWARD; ++direction)
        for (memory_t memory = PLAIN; memory <= DEVICE; ++memory, ++turn) {
          mapping_t m = {self,   shapes[s],    mapping, direction, dtypes[turn % (int)LENGTH(dtypes)],
                         memory, turn % 3 != 0};
          m.async = m.async && may_be_async(&m);
          static const size_t chunks[] = {1, 2, 3, MOST_CHUNKS};
          if (rooms[memory].in != NULL) PASS_ON(check_chunks(self, &m, &rooms[memory], chunks[turn % 4]));
        }
  return close_rooms(self, rooms);
}

static void chunks_add_up_to_the_whole(void** state) {
  (void)state;
  for (int32_t size = 1; size <= MOST_RANKS; ++size) assert_int_equal(run_ranks(size, chunks_body, NULL), 0);
}

/* ---- in place */

static int in_place_body(rank_t* self) {
  const size_t n = (size_t)self->size, part = 6, own = (size_t)self->rank * part;
  float all[MOST_RANKS * 6];
  for (size_t i = 0; i < n * part; ++i) all[i] = (float)value(self->rank, 0, i, 0);
  CHECK_OK(self, map_even(self->world, DSC_TENSOR_MAPPING_REDUCE_SCATTER, FORWARD, all, all + own, 1,
                          n * part, 1, DSC_DTYPE_F32, NULL, NULL));
  for (size_t i = own; i < own + part; ++i) {
    int sum = 0;
    for (int32_t r = 0; r < self->size; ++r) sum += value(r, 0, i, 0);
    CHECK(self, (int)all[i] == sum);
  }
  CHECK_OK(self, map_even(self->world, DSC_TENSOR_MAPPING_REDUCE_SCATTER, BACKWARD, all + own, all, 1,
                          n * part, 1, DSC_DTYPE_F32, NULL, NULL));
  for (size_t i = 0; i < n * part; ++i) {
    int sum = 0;
    for (int32_t r = 0; r < self->size; ++r) sum += value(r, 0, i, 0);
    CHECK(self, (int)all[i] == sum);
  }
  CHECK_OK(self, map_even(self->world, DSC_TENSOR_MAPPING_COPY, FORWARD, all, all, 1, n * part, 1,
                          DSC_DTYPE_F32, NULL, NULL));
  return 0;
}

static void the_own_part_may_be_in_place(void** state) {
  (void)state;
  for (int32_t size = 1; size <= MOST_RANKS; ++size)
    assert_int_equal(run_ranks(size, in_place_body, NULL), 0);
}

/* A batch without rows, with the null pointers that frameworks pass for it. */
static int no_rows_body(rank_t* self) {
  for (dsc_tensor_mapping_t mapping = DSC_TENSOR_MAPPING_COPY; mapping <= DSC_TENSOR_MAPPING_REDUCE_SCATTER;
       ++mapping)
    for (direction_t direction = FORWARD; direction <= BACKWARD; ++direction)
      for (size_t chunk = 0; chunk < 2; ++chunk)
        CHECK_OK(self, map_chunk(self->world, mapping, direction, NULL, NULL, 0, (size_t)12 << 20, 1, chunk,
                                 2, DSC_DTYPE_F32, NULL, NULL));
  return 0;
}

static void nothing_has_chunks(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, no_rows_body, NULL), 0);
}

/* ---- ranges */

static void ranges_are_as_even_as_possible(void** state) {
  (void)state;
  for (size_t count = 0; count < 30; ++count)
    for (size_t parts = 1; parts < 9; ++parts) {
      size_t next = 0;
      for (size_t part = 0; part < parts; ++part) {
        size_t begin = 99, length = 99;
        assert_int_equal(dsc_tensor_map_part(count, parts, part, &begin, &length), DSC_OK);
        assert_int_equal(begin, next);
        assert_int_equal(length, (count + parts - 1 - part) / parts);
        next += length;
      }
      assert_int_equal(next, count);
    }
  size_t begin = 0, length = 0;
  assert_int_equal(dsc_tensor_map_part(8, 0, 0, &begin, &length), DSC_ERR_INVALID_ARG);
  assert_string_equal(dsc_last_error_message(), "dsc_tensor_map_part: parts is 0, expected 1 or more");
  assert_int_equal(dsc_tensor_map_part(8, 4, 4, &begin, &length), DSC_ERR_INVALID_ARG);
  assert_string_equal(dsc_last_error_message(), "dsc_tensor_map_part: part is 4, expected 0 to 3");
  assert_int_equal(dsc_tensor_map_part(8, 4, 3, NULL, &length), DSC_ERR_INVALID_ARG);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_mapping_is_its_definition), cmocka_unit_test(chunks_add_up_to_the_whole),
      cmocka_unit_test(the_own_part_may_be_in_place),    cmocka_unit_test(nothing_has_chunks),
      cmocka_unit_test(ranges_are_as_even_as_possible),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
