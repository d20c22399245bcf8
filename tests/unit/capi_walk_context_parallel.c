/* Exchange between sequence and heads, rings of blocks, and orders of a sequence. */
#include <stdint.h>

#include "capi_walk.h"

#define W walk_world.world
#define R walk_world.ring
#define F32 DSC_DTYPE_F32

static float data[64], out[64];

/* Returns a pointer to the options, which the next call overwrites. */
static const dsc_sequence_heads_options_t* heads_of(size_t batch, size_t sequence, size_t heads,
                                                    size_t head_dim, const size_t* sequence_parts,
                                                    const size_t* head_parts) {
  static dsc_sequence_heads_options_t options;
  (void)dsc_sequence_heads_options_init(&options, sizeof options);
  options.batch = batch;
  options.sequence = sequence;
  options.heads = heads;
  options.head_dim = head_dim;
  options.sequence_parts = sequence_parts;
  options.head_parts = head_parts;
  return &options;
}

static void sequence_to_heads(void) {
  static const size_t two[] = {1, 3}, three[] = {1, 2}, long_ones[] = {SIZE_MAX / 2, SIZE_MAX / 2};
  const size_t huge = SIZE_MAX / 2;
  dsc_work_t* work = walk_world.work;
  char* const other = (char*)data + 4;
  out[0] = 7;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t,
                   dsc_sequence_to_heads(bad, heads_of(1, 4, 4, 2, NULL, NULL), data, out, F32, NULL, &work));
  dsc_sequence_heads_options_t unset;
  WALK_INVALID(dsc_sequence_heads_options_init(NULL, sizeof unset));
  WALK_INVALID(dsc_sequence_heads_options_init(&unset, 4));
  WALK(DSC_OK, dsc_sequence_heads_options_init(&unset, sizeof unset));
  EXPECT(unset.batch == 1);
  unset.sequence = unset.heads = 4;
  WALK_INVALID(dsc_sequence_to_heads(W, &unset, data, out, F32, NULL, &work));
  unset.struct_size = 4;
  WALK_INVALID(dsc_sequence_to_heads(W, &unset, data, out, F32, NULL, &work));
  WALK_INVALID(dsc_heads_to_sequence(W, NULL, data, out, F32, NULL, &work));
  WALK_INVALID(dsc_sequence_to_heads(W, heads_of(1, 4, 4, 2, NULL, NULL), NULL, out, F32, NULL, &work));
  WALK_INVALID(dsc_sequence_to_heads(W, heads_of(1, 4, 4, 2, NULL, NULL), data, NULL, F32, NULL, &work));
  WALK_INVALID(dsc_sequence_to_heads(W, heads_of(1, 4, 4, 2, NULL, NULL), data, data, F32, NULL, &work));
  WALK_INVALID(dsc_sequence_to_heads(W, heads_of(1, 4, 4, 2, NULL, NULL), data, other, F32, NULL, &work));
  WALK_INVALID(dsc_sequence_to_heads(W, heads_of(1, 3, 4, 2, NULL, NULL), data, out, F32, NULL, &work));
  WALK_INVALID(dsc_sequence_to_heads(W, heads_of(1, 4, 3, 2, NULL, NULL), data, out, F32, NULL, &work));
  WALK_INVALID(dsc_sequence_to_heads(W, heads_of(1, 4, 4, 2, three, NULL), data, out, F32, NULL, &work));
  WALK_INVALID(dsc_sequence_to_heads(W, heads_of(1, 4, 4, 2, two, three), data, out, F32, NULL, &work));
  WALK_INVALID(dsc_sequence_to_heads(W, heads_of(1, 4, 4, 2, NULL, NULL), data, out, 0, NULL, &work));
  WALK_INVALID(dsc_sequence_to_heads(W, heads_of(1, 4, 4, 2, NULL, NULL), data, out, 14, NULL, &work));
  WALK(DSC_ERR_OVERFLOW,
       dsc_sequence_to_heads(W, heads_of(huge, 4, 4, 2, NULL, NULL), data, out, F32, NULL, &work));
  WALK(DSC_ERR_OVERFLOW,
       dsc_sequence_to_heads(W, heads_of(0, huge, 4, 2, NULL, NULL), data, out, F32, NULL, &work));
  WALK(DSC_ERR_OVERFLOW,
       dsc_sequence_to_heads(W, heads_of(1, 4, 4, 2, long_ones, NULL), data, out, F32, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED,
       dsc_sequence_to_heads(W, heads_of(1, 4, 4, 2, NULL, NULL), data, out, F32, (void*)data, &work));
  EXPECT(work == NULL && out[0] == 7);
  data[0] = 3;
  WALK(DSC_OK,
       dsc_sequence_to_heads(walk_world.alone, heads_of(1, 4, 4, 2, NULL, NULL), data, out, F32, NULL, NULL));
  EXPECT(out[0] == 3);
  WALK(DSC_OK,
       dsc_sequence_to_heads(walk_world.alone, heads_of(1, 4, 4, 2, NULL, NULL), out, out, F32, NULL, NULL));
  walk_world_works();
}

static void create_and_destroy(void) {
  dsc_ring_t* ring = R;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_ring_create(bad, 32, 0, &ring));
  EXPECT(ring == NULL);
  WALK_INVALID(dsc_ring_create(walk_world.alone, 0, 0, &ring));
  WALK_INVALID(dsc_ring_create(walk_world.alone, 32, 0, NULL));
  WALK(DSC_ERR_OVERFLOW, dsc_ring_create(walk_world.alone, SIZE_MAX / 2, 0, &ring));
  WALK(DSC_ERR_OVERFLOW, dsc_ring_create(walk_world.alone, 32, SIZE_MAX / 2, &ring));
  WALK(DSC_OK, dsc_ring_create(walk_world.alone, 32, 0, &ring));
  WALK_BAD_HANDLES_BUT_NULL(WALK_RING, dsc_ring_t, dsc_ring_destroy(bad));
  WALK(DSC_OK, dsc_ring_destroy(NULL));
  WALK(DSC_OK, dsc_ring_destroy(ring));
  WALK(DSC_ERR_BAD_HANDLE, dsc_ring_destroy(ring));
}

static void begin(void) {
  static const size_t own[] = {8}, others[] = {7}, too_long[] = {SIZE_MAX};
  WALK_BAD_HANDLES(WALK_RING, dsc_ring_t, dsc_ring_begin(bad, data, 8, NULL, F32, NULL, 0, NULL));
  WALK_INVALID(dsc_ring_begin(R, NULL, 8, NULL, F32, NULL, 0, NULL));
  WALK_INVALID(dsc_ring_begin(R, data, 9, NULL, F32, NULL, 0, NULL));
  WALK_INVALID(dsc_ring_begin(R, data, 8, others, F32, NULL, 0, NULL));
  WALK_INVALID(dsc_ring_begin(R, data, 8, NULL, 0, NULL, 0, NULL));
  WALK_INVALID(dsc_ring_begin(R, data, 8, NULL, 14, NULL, 0, NULL));
  WALK_INVALID(dsc_ring_begin(R, data, 8, NULL, F32, out, 14, NULL));
  WALK_INVALID(dsc_ring_begin(R, data, 8, NULL, F32, out, -1, NULL));
  WALK_INVALID(dsc_ring_begin(R, data, 8, NULL, F32, NULL, F32, NULL));
  WALK_INVALID(dsc_ring_begin(R, data, 8, NULL, F32, out, DSC_DTYPE_F64, NULL));
  WALK_INVALID(dsc_ring_begin(R, data, 8, NULL, F32, data + 7, F32, NULL));
  WALK(DSC_ERR_OVERFLOW, dsc_ring_begin(R, data, SIZE_MAX / 2, NULL, F32, NULL, 0, NULL));
  WALK(DSC_ERR_OVERFLOW, dsc_ring_begin(R, data, SIZE_MAX, too_long, F32, NULL, 0, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_ring_begin(R, data, 8, NULL, F32, NULL, 0, (void*)data));
  WALK(DSC_OK, dsc_ring_begin(R, NULL, 0, NULL, F32, NULL, 0, NULL));
  WALK(DSC_OK, dsc_ring_begin(R, data, 8, own, F32, data, 0, NULL));
  WALK(DSC_OK, dsc_ring_begin(R, data, 8, own, F32, out, F32, NULL));
}

/* Runs after begin(), so a pass with gradients is open. */
static void next(void) {
  int32_t source = 7;
  const void* block = out;
  size_t count = 7;
  void* grad = NULL;
  WALK_BAD_HANDLES(WALK_RING, dsc_ring_t, dsc_ring_next(bad, -1, &source, &block, &count, &grad));
  WALK_INVALID(dsc_ring_next(R, -2, &source, &block, &count, &grad));
  WALK_INVALID(dsc_ring_next(R, -1, NULL, &block, &count, &grad));
  WALK_INVALID(dsc_ring_next(R, -1, &source, NULL, &count, &grad));
  WALK_INVALID(dsc_ring_next(R, -1, &source, &block, NULL, &grad));
  WALK_INVALID(dsc_ring_next(R, -1, &source, &block, &count, NULL));
  EXPECT(source == 7 && block == out && count == 7);
  out[0] = 7;
  WALK(DSC_OK, dsc_ring_next(R, 0, &source, &block, &count, &grad));
  EXPECT(source == 0 && block == data && count == 8 && grad == out && out[0] == 0);
  out[0] = 5;
  WALK(DSC_OK, dsc_ring_next(R, -1, &source, &block, &count, &grad));
  EXPECT(source == -1 && block == NULL && count == 0 && grad == NULL && out[0] == 5);
  WALK(DSC_ERR_STATE, dsc_ring_next(R, -1, &source, &block, &count, &grad));
}

static void synchronize(void) {
  WALK_BAD_HANDLES(WALK_RING, dsc_ring_t, dsc_ring_synchronize(bad, -1));
  WALK_INVALID(dsc_ring_synchronize(R, -2));
  WALK(DSC_OK, dsc_ring_synchronize(R, 0));
  WALK(DSC_OK, dsc_ring_synchronize(R, -1));
}

static void ranges(void) {
  size_t begins[2] = {9, 9}, lengths[2] = {9, 9};
  WALK_INVALID(dsc_sequence_ranges(0, 8, 2, 0, begins, lengths));
  WALK_INVALID(dsc_sequence_ranges(3, 8, 2, 0, begins, lengths));
  WALK_INVALID(dsc_sequence_ranges(DSC_SEQUENCE_ORDER_ZIGZAG, 8, 0, 0, begins, lengths));
  WALK_INVALID(dsc_sequence_ranges(DSC_SEQUENCE_ORDER_ZIGZAG, 8, 2, 2, begins, lengths));
  WALK_INVALID(dsc_sequence_ranges(DSC_SEQUENCE_ORDER_ZIGZAG, 8, 2, -1, begins, lengths));
  WALK_INVALID(dsc_sequence_ranges(DSC_SEQUENCE_ORDER_ZIGZAG, 8, 2, 0, NULL, lengths));
  WALK_INVALID(dsc_sequence_ranges(DSC_SEQUENCE_ORDER_ZIGZAG, 8, 2, 0, begins, NULL));
  EXPECT(begins[0] == 9 && lengths[0] == 9);
  WALK(DSC_OK, dsc_sequence_ranges(DSC_SEQUENCE_ORDER_ZIGZAG, 8, 2, 1, begins, lengths));
  EXPECT(begins[0] == 2 && lengths[0] == 2 && begins[1] == 4 && lengths[1] == 2);
  WALK(DSC_OK, dsc_sequence_ranges(DSC_SEQUENCE_ORDER_CONTIGUOUS, SIZE_MAX, INT32_MAX, 0, begins, lengths));
  EXPECT(begins[0] == 0 && lengths[0] > SIZE_MAX / INT32_MAX && lengths[1] == 0);
}

static void work_of_a_step(void) {
  dsc_sequence_causal_range_t work = {.struct_size = sizeof work, .query_count = 9},
                              wrong = {.struct_size = 8};
  WALK_INVALID(dsc_sequence_causal_range(0, 8, 2, 0, 0, &work));
  WALK_INVALID(dsc_sequence_causal_range(DSC_SEQUENCE_ORDER_ZIGZAG, 8, 0, 0, 0, &work));
  WALK_INVALID(dsc_sequence_causal_range(DSC_SEQUENCE_ORDER_ZIGZAG, 8, 2, 2, 0, &work));
  WALK_INVALID(dsc_sequence_causal_range(DSC_SEQUENCE_ORDER_ZIGZAG, 8, 2, 0, 2, &work));
  WALK_INVALID(dsc_sequence_causal_range(DSC_SEQUENCE_ORDER_ZIGZAG, 8, 2, 0, -1, &work));
  WALK_INVALID(dsc_sequence_causal_range(DSC_SEQUENCE_ORDER_ZIGZAG, 8, 2, 0, 0, NULL));
  WALK_INVALID(dsc_sequence_causal_range(DSC_SEQUENCE_ORDER_ZIGZAG, 8, 2, 0, 0, &wrong));
  EXPECT(work.query_count == 9);
  WALK(DSC_OK, dsc_sequence_causal_range(DSC_SEQUENCE_ORDER_ZIGZAG, 8, 2, 0, 1, &work));
  EXPECT(work.query_begin == 2 && work.query_count == 2 && work.key_begin == 0 && work.key_count == 4);
  EXPECT(work.is_diagonal == 0);
  WALK(DSC_OK, dsc_sequence_causal_range(DSC_SEQUENCE_ORDER_CONTIGUOUS, 8, 2, 0, 0, &work));
  EXPECT(work.query_count == 4 && work.key_count == 4 && work.is_diagonal == 1);
}

const walk_step_t walk_context_parallel[] = {
    {"dsc_sequence_to_heads", sequence_to_heads},
    {"dsc_heads_to_sequence", sequence_to_heads},
    {"dsc_sequence_heads_options_init", sequence_to_heads},
    {"dsc_ring_create", create_and_destroy},
    {"dsc_ring_destroy", create_and_destroy},
    {"dsc_ring_begin", begin},
    {"dsc_ring_next", next},
    {"dsc_ring_synchronize", synchronize},
    {"dsc_sequence_ranges", ranges},
    {"dsc_sequence_causal_range", work_of_a_step},
    {NULL, NULL},
};
