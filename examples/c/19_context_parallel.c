/*
 * Context parallelism: a causal attention, forward and backward, over a sequence that the ranks divide.
 *
 * Ring: each rank keeps its queries, and receives the keys and values of all ranks, one block per step. The
 * sequence is in zig-zag order, so that each rank has the same work at each step. Gradients of keys and
 * values follow their blocks.
 *
 * Ulysses: an all-to-all turns a part of the tokens with all heads into all tokens with a part of the heads,
 * and back.
 *
 *   dscrun -n 4 -- ./19_context_parallel
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "check.h"

enum { BATCH = 2, TOKENS = 16, HEADS = 4, DIM = 2, MOST = BATCH * TOKENS * HEADS * DIM };

/* Queries, keys, values and the gradient of the output of some tokens and heads; then the results. Arrays
 * are [BATCH, tokens, heads, DIM]; keys and values are one after the other, as are their gradients. */
typedef struct {
  size_t tokens;
  size_t heads;
  double q[MOST], kv[2 * MOST], upstream[MOST];
  double out[MOST], dq[MOST], dkv[2 * MOST];
  double top[MOST], total[MOST]; /* the largest score of each query, and the sum of exp(score - top) */
} attention_t;

static size_t count_of(const attention_t* a) { return BATCH * a->tokens * a->heads * DIM; }

static double dot(const double* x, const double* y) {
  double sum = 0;
  for (size_t d = 0; d < DIM; d++) sum += x[d] * y[d];
  return sum;
}

/* Returns the offset of token t, head h of batch b. */
static size_t at(const attention_t* a, size_t b, size_t t, size_t h) {
  return ((b * a->tokens + t) * a->heads + h) * DIM;
}

/* Adds one pair of a query and a key to the output. */
static void attend_pair(attention_t* a, size_t query, const double* k, const double* v) {
  const double score = dot(a->q + query, k) / sqrt(DIM);
  double* const top = a->top + query / DIM;
  double* const total = a->total + query / DIM;
  const double highest = fmax(*top, score);
  const double old = exp(*top - highest);
  const double now = exp(score - highest);
  *total = *total * old + now;
  for (size_t d = 0; d < DIM; d++) a->out[query + d] = a->out[query + d] * old + now * v[d];
  *top = highest;
}

static void gradient_pair(attention_t* a, size_t query, const double* k, const double* v, double* dk,
                          double* dv) {
  const double score = dot(a->q + query, k) / sqrt(DIM);
  const double p = exp(score - a->top[query / DIM]) / a->total[query / DIM];
  const double* const upstream = a->upstream + query;
  const double slope = p * (dot(upstream, v) - dot(upstream, a->out + query)) / sqrt(DIM);
  for (size_t d = 0; d < DIM; d++) {
    dv[d] += p * upstream[d];
    dk[d] += slope * a->q[query + d];
    a->dq[query + d] += slope * k[d];
  }
}

/* Processes all pairs of one step; `grad` is NULL in the forward pass. */
static void take_block(attention_t* a, const dsc_sequence_causal_range_t* work, const double* kv,
                       double* grad) {
  const size_t values = count_of(a);
  for (size_t b = 0; b < BATCH; b++)
    for (size_t h = 0; h < a->heads; h++)
      for (size_t i = work->query_begin; i < work->query_begin + work->query_count; i++)
        for (size_t j = work->key_begin; j < work->key_begin + work->key_count; j++) {
          if (work->is_diagonal && j > i) break;
          const size_t query = at(a, b, i, h);
          const size_t key = at(a, b, j, h);
          if (!grad) attend_pair(a, query, kv + key, kv + values + key);
          if (grad) gradient_pair(a, query, kv + key, kv + values + key, grad + key, grad + values + key);
        }
}

static void begin(attention_t* a) {
  memset(a->out, 0, sizeof a->out);
  memset(a->dq, 0, sizeof a->dq);
  memset(a->dkv, 0, sizeof a->dkv);
  memset(a->total, 0, sizeof a->total);
  for (size_t i = 0; i < MOST; i++) a->top[i] = -INFINITY;
}

static void divide_by_sums(attention_t* a) {
  for (size_t i = 0; i < count_of(a); i++) a->out[i] /= a->total[i / DIM];
}

/* Computes the whole attention in one process. */
static void attention(attention_t* a) {
  const dsc_sequence_causal_range_t everything = {
      .struct_size = sizeof everything, .query_count = a->tokens, .key_count = a->tokens, .is_diagonal = 1};
  begin(a);
  take_block(a, &everything, a->kv, NULL);
  divide_by_sums(a);
  take_block(a, &everything, a->kv, a->dkv);
}

static void go_around(dsc_ring_t* ring, attention_t* a, int32_t rank, int32_t size, bool has_gradients) {
  const dsc_dtype_t grad_dtype = has_gradients ? DSC_DTYPE_F64 : 0;
  CHECK(dsc_ring_begin(ring, a->kv, 2 * count_of(a), NULL, DSC_DTYPE_F64, a->dkv, grad_dtype, NULL));
  for (;;) {
    int32_t source = -1;
    const void* block = NULL;
    void* grad = NULL;
    size_t count = 0;
    CHECK(dsc_ring_next(ring, -1, &source, &block, &count, &grad));
    if (source < 0) return;
    dsc_sequence_causal_range_t work = {.struct_size = sizeof work};
    CHECK(dsc_sequence_causal_range(DSC_SEQUENCE_ORDER_ZIGZAG, TOKENS, size, rank, source, &work));
    take_block(a, &work, block, grad); /* meanwhile the next block arrives */
  }
}

static void ring_attention(dsc_comm_t* world, attention_t* a, int32_t rank, int32_t size) {
  const size_t bytes = 2 * count_of(a) * sizeof(double);
  dsc_ring_t* ring = NULL;
  CHECK(dsc_ring_create(world, bytes, bytes, &ring));
  begin(a);
  go_around(ring, a, rank, size, false);
  divide_by_sums(a);
  go_around(ring, a, rank, size, true);
  CHECK(dsc_ring_destroy(ring));
}

static dsc_sequence_heads_options_t whole_shape(void) {
  dsc_sequence_heads_options_t options;
  CHECK(dsc_sequence_heads_options_init(&options, sizeof options));
  options.batch = BATCH;
  options.sequence = TOKENS;
  options.heads = HEADS;
  options.head_dim = DIM;
  return options;
}

static void to_heads(dsc_comm_t* world, const double* from, double* to) {
  const dsc_sequence_heads_options_t options = whole_shape();
  CHECK(dsc_sequence_to_heads(world, &options, from, to, DSC_DTYPE_F64, NULL, NULL));
}

static void to_sequence(dsc_comm_t* world, const double* from, double* to) {
  const dsc_sequence_heads_options_t options = whole_shape();
  CHECK(dsc_heads_to_sequence(world, &options, from, to, DSC_DTYPE_F64, NULL, NULL));
}

static void ulysses_attention(dsc_comm_t* world, attention_t* a, int32_t size) {
  static attention_t heads;
  heads.tokens = TOKENS;
  heads.heads = HEADS / (size_t)size;
  const size_t values = count_of(a); /* the number of elements is the same in both forms */
  to_heads(world, a->q, heads.q);
  to_heads(world, a->kv, heads.kv);
  to_heads(world, a->kv + values, heads.kv + values);
  to_heads(world, a->upstream, heads.upstream);
  attention(&heads);
  to_sequence(world, heads.out, a->out);
  to_sequence(world, heads.dq, a->dq);
  to_sequence(world, heads.dkv, a->dkv);
  to_sequence(world, heads.dkv + values, a->dkv + values);
}

/* ---- the tokens of a rank */

/* Copies the rank's tokens out of the whole array, or compares them with it. */
static void visit(const double* whole, double* part, dsc_sequence_order_t order, int32_t rank, int32_t size,
                  bool compares) {
  size_t begins[2];
  size_t lengths[2];
  CHECK(dsc_sequence_ranges(order, TOKENS, size, rank, begins, lengths));
  for (size_t b = 0; b < BATCH; b++)
    for (int i = 0; i < 2; i++) {
      const double* const from = whole + (b * TOKENS + begins[i]) * HEADS * DIM;
      const size_t count = lengths[i] * HEADS * DIM;
      if (!compares) memcpy(part, from, count * sizeof *part);
      for (size_t e = 0; e < count; e++) EXPECT(fabs(part[e] - from[e]) < 1e-12);
      part += count;
    }
}

static void take(const attention_t* whole, attention_t* part, dsc_sequence_order_t order, int32_t rank,
                 int32_t size) {
  const size_t values = count_of(part);
  visit(whole->q, part->q, order, rank, size, false);
  visit(whole->kv, part->kv, order, rank, size, false);
  visit(whole->kv + MOST, part->kv + values, order, rank, size, false);
  visit(whole->upstream, part->upstream, order, rank, size, false);
}

static void compare(const attention_t* whole, attention_t* part, dsc_sequence_order_t order, int32_t rank,
                    int32_t size) {
  const size_t values = count_of(part);
  visit(whole->out, part->out, order, rank, size, true);
  visit(whole->dq, part->dq, order, rank, size, true);
  visit(whole->dkv, part->dkv, order, rank, size, true);
  visit(whole->dkv + MOST, part->dkv + values, order, rank, size, true);
}

static void fill(double* to, size_t step) {
  for (size_t i = 0; i < MOST; i++) to[i] = (double)(i * step % 23) / 11 - 1;
}

int main(void) {
  dsc_comm_t* world = NULL;
  CHECK(dsc_init_distributed(NULL, &world));
  int32_t rank = -1;
  int32_t size = 0;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_size(world, &size));
  EXPECT(HEADS % size == 0);

  static attention_t whole = {.tokens = TOKENS, .heads = HEADS};
  static attention_t part = {.heads = HEADS};
  fill(whole.q, 3);
  fill(whole.kv, 5);
  fill(whole.kv + MOST, 7);
  fill(whole.upstream, 4);
  attention(&whole);

  part.tokens = TOKENS / (size_t)size;
  take(&whole, &part, DSC_SEQUENCE_ORDER_ZIGZAG, rank, size);
  ring_attention(world, &part, rank, size);
  compare(&whole, &part, DSC_SEQUENCE_ORDER_ZIGZAG, rank, size);

  take(&whole, &part, DSC_SEQUENCE_ORDER_CONTIGUOUS, rank, size);
  ulysses_attention(world, &part, size);
  compare(&whole, &part, DSC_SEQUENCE_ORDER_CONTIGUOUS, rank, size);

  double loss = 0;
  double squares = 0;
  for (size_t i = 0; i < MOST; i++) loss += whole.out[i] * whole.upstream[i];
  for (size_t i = 0; i < MOST; i++) squares += whole.dq[i] * whole.dq[i];
  for (size_t i = 0; i < (size_t)2 * MOST; i++) squares += whole.dkv[i] * whole.dkv[i];
  printf("rank %d: loss %.6f, norm of the gradients %.6f; ring and Ulysses agree with %zu tokens per rank\n",
         rank, loss, sqrt(squares), part.tokens);
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
