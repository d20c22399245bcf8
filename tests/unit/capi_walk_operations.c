/* Collectives, messages, work objects, memory. */
#include <stdint.h>

#include "capi_walk.h"
#include "map_calls.h"

static char bytes[256];  /* the outputs, which a refused call must not write */
static char data[256];   /* inputs */
static dsc_work_t* work; /* the output for a work, NULL after a failed call */
static void* const stream = bytes;

static void start(void) {
  memset(bytes, 0x77, sizeof bytes);
  work = walk_world.work;
}

static void expect_no_effect(void) {
  for (size_t i = 0; i < sizeof bytes; ++i) EXPECT(bytes[i] == 0x77);
  EXPECT(work == NULL);
}

#define W walk_world.world
#define F32 DSC_DTYPE_F32
#define SUM DSC_OP_SUM
static const volatile double zero = 0;
static const size_t huge = SIZE_MAX / 8;

static void all_reduce(void) {
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_all_reduce(bad, data, bytes, 4, F32, SUM, NULL, &work));
  WALK_INVALID(dsc_all_reduce(W, NULL, bytes, 4, F32, SUM, NULL, &work));
  WALK_INVALID(dsc_all_reduce(W, data, NULL, 4, F32, SUM, NULL, &work));
  WALK_INVALID(dsc_all_reduce(W, data, bytes, 4, 0, SUM, NULL, &work));
  WALK_INVALID(dsc_all_reduce(W, data, bytes, 4, 14, SUM, NULL, NULL));
  WALK_INVALID(dsc_all_reduce(W, data, bytes, 4, F32, 0, NULL, NULL));
  WALK_INVALID(dsc_all_reduce(W, data, bytes, 4, F32, 9, NULL, &work));
  WALK_INVALID(dsc_all_reduce(W, data, bytes, 4, F32, 1000, NULL, &work));
  WALK_INVALID(dsc_all_reduce(W, bytes, bytes + 15, 4, F32, SUM, NULL, &work));
  WALK_INVALID(dsc_all_reduce(W, bytes + 15, bytes, 4, F32, SUM, NULL, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_all_reduce(W, data, bytes, 4, DSC_DTYPE_I32, DSC_OP_AVG, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED, dsc_all_reduce(W, data, bytes, 4, DSC_DTYPE_BOOL, DSC_OP_AVG, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED, dsc_all_reduce(W, data, bytes, 4, F32, SUM, stream, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_all_reduce(W, data, bytes, huge * 4, F32, SUM, NULL, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_all_reduce(W, data, bytes, SIZE_MAX, DSC_DTYPE_U8, SUM, NULL, &work));
  expect_no_effect();
}

static void broadcast(void) {
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_broadcast(bad, data, bytes, 4, F32, 0, NULL, &work));
  WALK_INVALID(dsc_broadcast(W, NULL, bytes, 4, F32, 0, NULL, &work));
  WALK_INVALID(dsc_broadcast(W, data, NULL, 4, F32, 0, NULL, &work));
  WALK_INVALID(dsc_broadcast(W, NULL, NULL, 4, F32, 1, NULL, &work));
  WALK_INVALID(dsc_broadcast(W, data, bytes, 4, 0, 0, NULL, &work));
  WALK_INVALID(dsc_broadcast(W, data, bytes, 4, INT32_MAX, 0, NULL, &work));
  WALK_INVALID(dsc_broadcast(W, data, bytes, 4, F32, -1, NULL, &work));
  WALK_INVALID(dsc_broadcast(W, data, bytes, 4, F32, 2, NULL, NULL));
  WALK_INVALID(dsc_broadcast(W, bytes, bytes + 1, 4, F32, 0, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED, dsc_broadcast(W, data, bytes, 4, F32, 0, stream, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_broadcast(W, data, bytes, huge * 4, F32, 0, NULL, &work));
  expect_no_effect();
}

static void broadcast_shape(void) {
  dsc_dtype_t type = F32;
  int64_t shape[] = {2, 3, -1};
  size_t ndim = 2;
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_broadcast_shape(bad, &type, shape, 3, &ndim, 0));
  WALK_INVALID(dsc_broadcast_shape(W, &type, shape, 3, &ndim, -1));
  WALK_INVALID(dsc_broadcast_shape(W, &type, shape, 3, &ndim, 2));
  WALK_INVALID(dsc_broadcast_shape(W, NULL, shape, 3, &ndim, 0));
  WALK_INVALID(dsc_broadcast_shape(W, &type, NULL, 3, &ndim, 0));
  WALK_INVALID(dsc_broadcast_shape(W, &type, NULL, 0, &ndim, 0));
  WALK_INVALID(dsc_broadcast_shape(W, &type, shape, 3, NULL, 0));
  ndim = 3;
  WALK_INVALID(dsc_broadcast_shape(W, &type, shape, 3, &ndim, 0));
  ndim = 33;
  WALK_INVALID(dsc_broadcast_shape(W, &type, shape, 3, &ndim, 0));
  ndim = 2;
  type = 14;
  WALK_INVALID(dsc_broadcast_shape(W, &type, shape, 3, &ndim, 0));
  type = F32;
  shape[0] = shape[1] = INT64_MAX;
  WALK(DSC_ERR_OVERFLOW, dsc_broadcast_shape(W, &type, shape, 3, &ndim, 0));
  shape[1] = 1;
  WALK(DSC_ERR_OVERFLOW, dsc_broadcast_shape(W, &type, shape, 3, &ndim, 0));
  work = NULL; /* this call has no work */
  expect_no_effect();
}

static void all_gather(void) {
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_all_gather(bad, data, bytes, 4, F32, NULL, &work));
  WALK_INVALID(dsc_all_gather(W, NULL, bytes, 4, F32, NULL, &work));
  WALK_INVALID(dsc_all_gather(W, data, NULL, 4, F32, NULL, &work));
  WALK_INVALID(dsc_all_gather(W, data, bytes, 4, 14, NULL, &work));
  /* rank 0 sends from rank 1's part of its receive buffer */
  WALK_INVALID(dsc_all_gather(W, bytes + 16, bytes, 4, F32, NULL, NULL));
  WALK_INVALID(dsc_all_gather(W, bytes + 31, bytes, 4, F32, NULL, &work));
  WALK_INVALID(dsc_all_gather(W, bytes, bytes + 15, 4, F32, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED, dsc_all_gather(W, data, bytes, 4, F32, stream, &work));
  /* the receive buffer would have the data of two ranks, which is more than a buffer can have */
  WALK(DSC_ERR_OVERFLOW, dsc_all_gather(W, data, bytes, huge, F32, NULL, &work));
  expect_no_effect();
}

static void reduce_scatter(void) {
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_reduce_scatter(bad, data, bytes, 4, F32, SUM, NULL, &work));
  WALK_INVALID(dsc_reduce_scatter(W, NULL, bytes, 4, F32, SUM, NULL, &work));
  WALK_INVALID(dsc_reduce_scatter(W, data, NULL, 4, F32, SUM, NULL, &work));
  WALK_INVALID(dsc_reduce_scatter(W, data, bytes, 4, -1, SUM, NULL, &work));
  WALK_INVALID(dsc_reduce_scatter(W, data, bytes, 4, F32, -1, NULL, &work));
  /* rank 0 receives into rank 1's part of its send buffer */
  WALK_INVALID(dsc_reduce_scatter(W, bytes, bytes + 16, 4, F32, SUM, NULL, NULL));
  WALK_INVALID(dsc_reduce_scatter(W, bytes, bytes + 31, 4, F32, SUM, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED, dsc_reduce_scatter(W, data, bytes, 4, DSC_DTYPE_U8, DSC_OP_AVG, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED, dsc_reduce_scatter(W, data, bytes, 4, F32, SUM, stream, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_reduce_scatter(W, data, bytes, huge, F32, SUM, NULL, &work));
  expect_no_effect();
}

static void barrier(void) {
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_barrier(bad, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED, dsc_barrier(W, stream, &work));
  expect_no_effect();
}

static void reduce(void) {
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_reduce(bad, data, bytes, 4, F32, SUM, 0, NULL, &work));
  WALK_INVALID(dsc_reduce(W, NULL, bytes, 4, F32, SUM, 0, NULL, &work));
  WALK_INVALID(dsc_reduce(W, data, NULL, 4, F32, SUM, 0, NULL, &work));
  WALK_INVALID(dsc_reduce(W, NULL, NULL, 4, F32, SUM, 1, NULL, &work));
  WALK_INVALID(dsc_reduce(W, data, bytes, 4, 14, SUM, 0, NULL, &work));
  WALK_INVALID(dsc_reduce(W, data, bytes, 4, F32, 9, 0, NULL, &work));
  WALK_INVALID(dsc_reduce(W, data, bytes, 4, F32, SUM, 2, NULL, NULL));
  WALK_INVALID(dsc_reduce(W, bytes + 15, bytes, 4, F32, SUM, 0, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED, dsc_reduce(W, data, bytes, 4, DSC_DTYPE_I8, DSC_OP_AVG, 0, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED, dsc_reduce(W, data, bytes, 4, F32, SUM, 0, stream, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_reduce(W, data, bytes, huge * 4, F32, SUM, 0, NULL, &work));
  expect_no_effect();
}

static void gather(void) {
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_gather(bad, data, bytes, 4, F32, 0, NULL, &work));
  WALK_INVALID(dsc_gather(W, NULL, bytes, 4, F32, 0, NULL, &work));
  WALK_INVALID(dsc_gather(W, data, NULL, 4, F32, 0, NULL, &work));
  WALK_INVALID(dsc_gather(W, data, bytes, 4, 0, 0, NULL, &work));
  WALK_INVALID(dsc_gather(W, data, bytes, 4, F32, -1, NULL, &work));
  /* rank 0 sends from rank 1's part of its receive buffer */
  WALK_INVALID(dsc_gather(W, bytes + 16, bytes, 4, F32, 0, NULL, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_gather(W, data, bytes, 4, F32, 0, stream, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_gather(W, data, bytes, huge, F32, 0, NULL, &work));
  expect_no_effect();
}

static void scatter(void) {
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_scatter(bad, data, bytes, 4, F32, 0, NULL, &work));
  WALK_INVALID(dsc_scatter(W, NULL, bytes, 4, F32, 0, NULL, &work));
  WALK_INVALID(dsc_scatter(W, data, NULL, 4, F32, 0, NULL, &work));
  WALK_INVALID(dsc_scatter(W, NULL, NULL, 4, F32, 1, NULL, &work));
  WALK_INVALID(dsc_scatter(W, data, bytes, 4, 14, 0, NULL, &work));
  WALK_INVALID(dsc_scatter(W, data, bytes, 4, F32, 2, NULL, &work));
  /* rank 0 receives into rank 1's part of its send buffer */
  WALK_INVALID(dsc_scatter(W, bytes, bytes + 16, 4, F32, 0, NULL, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_scatter(W, data, bytes, 4, F32, 0, stream, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_scatter(W, data, bytes, huge, F32, 0, NULL, &work));
  expect_no_effect();
}

static void all_to_all(void) {
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_all_to_all(bad, data, bytes, 4, F32, NULL, &work));
  WALK_INVALID(dsc_all_to_all(W, NULL, bytes, 4, F32, NULL, &work));
  WALK_INVALID(dsc_all_to_all(W, data, NULL, 4, F32, NULL, &work));
  WALK_INVALID(dsc_all_to_all(W, data, bytes, 4, 0, NULL, &work));
  WALK_INVALID(dsc_all_to_all(W, bytes, bytes + 16, 4, F32, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED, dsc_all_to_all(W, data, bytes, 4, F32, stream, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_all_to_all(W, data, bytes, huge, F32, NULL, &work));
  expect_no_effect();
}

static const size_t lengths[] = {4, 3};
static const size_t too_long[] = {SIZE_MAX / 8, SIZE_MAX / 8};
static const size_t wraps[] = {SIZE_MAX, 2};

static void all_gather_v(void) {
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_all_gather_v(bad, data, bytes, lengths, F32, NULL, &work));
  WALK_INVALID(dsc_all_gather_v(W, NULL, bytes, lengths, F32, NULL, &work));
  WALK_INVALID(dsc_all_gather_v(W, data, NULL, lengths, F32, NULL, &work));
  WALK_INVALID(dsc_all_gather_v(W, data, bytes, NULL, F32, NULL, &work));
  WALK_INVALID(dsc_all_gather_v(W, data, bytes, lengths, 14, NULL, &work));
  WALK_INVALID(dsc_all_gather_v(W, bytes + 4, bytes, lengths, F32, NULL, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_all_gather_v(W, data, bytes, lengths, F32, stream, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_all_gather_v(W, data, bytes, too_long, F32, NULL, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_all_gather_v(W, data, bytes, wraps, DSC_DTYPE_U8, NULL, &work));
  expect_no_effect();
}

static void reduce_scatter_v(void) {
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t,
                   dsc_reduce_scatter_v(bad, data, bytes, lengths, F32, SUM, NULL, &work));
  WALK_INVALID(dsc_reduce_scatter_v(W, NULL, bytes, lengths, F32, SUM, NULL, &work));
  WALK_INVALID(dsc_reduce_scatter_v(W, data, NULL, lengths, F32, SUM, NULL, &work));
  WALK_INVALID(dsc_reduce_scatter_v(W, data, bytes, NULL, F32, SUM, NULL, &work));
  WALK_INVALID(dsc_reduce_scatter_v(W, data, bytes, lengths, F32, 0, NULL, &work));
  WALK_INVALID(dsc_reduce_scatter_v(W, bytes, bytes + 4, lengths, F32, SUM, NULL, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_reduce_scatter_v(W, data, bytes, lengths, F32, SUM, stream, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_reduce_scatter_v(W, data, bytes, too_long, F32, SUM, NULL, &work));
  expect_no_effect();
}

static void all_to_all_v(void) {
  static const size_t other[] = {5, 3};
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t,
                   dsc_all_to_all_v(bad, data, lengths, bytes, lengths, F32, NULL, &work));
  WALK_INVALID(dsc_all_to_all_v(W, NULL, lengths, bytes, lengths, F32, NULL, &work));
  WALK_INVALID(dsc_all_to_all_v(W, data, lengths, NULL, lengths, F32, NULL, &work));
  WALK_INVALID(dsc_all_to_all_v(W, data, NULL, bytes, lengths, F32, NULL, &work));
  WALK_INVALID(dsc_all_to_all_v(W, data, lengths, bytes, NULL, F32, NULL, &work));
  /* the length that a rank sends to itself differs from what it receives */
  WALK_INVALID(dsc_all_to_all_v(W, data, lengths, bytes, other, F32, NULL, &work));
  WALK_INVALID(dsc_all_to_all_v(W, data, lengths, bytes, lengths, 0, NULL, &work));
  WALK_INVALID(dsc_all_to_all_v(W, bytes, lengths, bytes, lengths, F32, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED, dsc_all_to_all_v(W, data, lengths, bytes, lengths, F32, stream, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_all_to_all_v(W, data, too_long, bytes, lengths, F32, NULL, &work));
  expect_no_effect();
}

/* Returns a pointer to the options, which the next call overwrites. */
static const dsc_tensor_map_options_t* even_map(dsc_tensor_mapping_t mapping, size_t outer, size_t dim,
                                                size_t inner) {
  static dsc_tensor_map_options_t options;
  options = map_options(mapping, outer, dim, inner);
  return &options;
}

static const dsc_tensor_map_options_t* chunk_of_map(dsc_tensor_mapping_t mapping, size_t outer, size_t dim,
                                                    size_t inner, size_t chunk, size_t chunks) {
  static dsc_tensor_map_options_t options;
  options = map_options(mapping, outer, dim, inner);
  options.chunk = chunk;
  options.chunks = chunks;
  return &options;
}

static const dsc_tensor_map_options_t* uneven_map(dsc_tensor_mapping_t mapping, size_t outer,
                                                  const size_t* parts, const size_t* other_parts,
                                                  size_t inner) {
  static dsc_tensor_map_options_t options;
  options = map_options(mapping, outer, SIZE_MAX, inner);
  options.parts = parts;
  options.other_parts = other_parts;
  return &options;
}

static void tensor_map(void) {
  const dsc_tensor_mapping_t gather = DSC_TENSOR_MAPPING_GATHER;
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t,
                   dsc_tensor_map_forward(bad, even_map(gather, 1, 8, 1), data, bytes, F32, NULL, &work));
  WALK_INVALID(dsc_tensor_map_forward(W, even_map(0, 1, 8, 1), data, bytes, F32, NULL, &work));
  WALK_INVALID(dsc_tensor_map_forward(W, even_map(10, 1, 8, 1), data, bytes, F32, NULL, NULL));
  dsc_tensor_map_options_t options;
  WALK_INVALID(dsc_tensor_map_options_init(NULL, sizeof options));
  WALK_INVALID(dsc_tensor_map_options_init(&options, 4));
  WALK(DSC_OK, dsc_tensor_map_options_init(&options, sizeof options));
  EXPECT(options.mapping == 0 && options.outer == 1 && options.inner == 1 && options.chunks == 1);
  options.mapping = gather;
  /* the dimension is missing */
  WALK_INVALID(dsc_tensor_map_forward(W, &options, data, bytes, F32, NULL, &work));
  options.struct_size = 4;
  WALK_INVALID(dsc_tensor_map_forward(W, &options, data, bytes, F32, NULL, &work));
  WALK_INVALID(dsc_tensor_map_backward(W, NULL, data, bytes, F32, NULL, &work));
  WALK_INVALID(dsc_tensor_map_forward(W, even_map(gather, 1, 8, 1), NULL, bytes, F32, NULL, &work));
  WALK_INVALID(dsc_tensor_map_forward(W, even_map(gather, 1, 8, 1), data, NULL, F32, NULL, &work));
  WALK_INVALID(dsc_tensor_map_forward(W, even_map(gather, 1, 7, 1), data, bytes, F32, NULL, &work));
  WALK_INVALID(dsc_tensor_map_forward(W, even_map(gather, 1, 8, 1), data, bytes, 0, NULL, &work));
  WALK_INVALID(dsc_tensor_map_forward(W, even_map(gather, 1, 8, 1), bytes + 1, bytes, F32, NULL, &work));
  WALK_INVALID(dsc_tensor_map_forward(W, even_map(DSC_TENSOR_MAPPING_HIDDEN_TO_SEQUENCE, 3, 8, 1), data,
                                      bytes, F32, NULL, NULL));
  WALK(DSC_ERR_UNSUPPORTED,
       dsc_tensor_map_forward(W, even_map(gather, 1, 8, 1), data, bytes, F32, stream, &work));
  WALK(DSC_ERR_OVERFLOW,
       dsc_tensor_map_forward(W, even_map(gather, huge, 8, 2), data, bytes, F32, NULL, &work));
  WALK(DSC_ERR_OVERFLOW,
       dsc_tensor_map_forward(W, even_map(gather, huge, huge - 1, 1), data, bytes, F32, NULL, &work));
  expect_no_effect();
}

static void tensor_map_chunk(void) {
  const dsc_tensor_mapping_t gather = DSC_TENSOR_MAPPING_GATHER;
  start();
  WALK_BAD_HANDLES(
      WALK_COMM, dsc_comm_t,
      dsc_tensor_map_backward(bad, chunk_of_map(gather, 1, 8, 1, 0, 2), data, bytes, F32, NULL, &work));
  WALK_INVALID(dsc_tensor_map_backward(W, chunk_of_map(0, 1, 8, 1, 0, 2), data, bytes, F32, NULL, &work));
  WALK_INVALID(
      dsc_tensor_map_backward(W, chunk_of_map(gather, 1, 8, 1, 2, 2), data, bytes, F32, NULL, &work));
  WALK_INVALID(
      dsc_tensor_map_backward(W, chunk_of_map(gather, 1, 8, 1, 0, 0), data, bytes, F32, NULL, &work));
  WALK_INVALID(dsc_tensor_map_backward(W, chunk_of_map(gather, 1, 7, 1, 0, 2), data, bytes, F32, NULL, NULL));
  WALK_INVALID(
      dsc_tensor_map_backward(W, chunk_of_map(gather, 1, 8, 1, 0, 2), NULL, bytes, F32, NULL, &work));
  WALK_INVALID(dsc_tensor_map_backward(W, chunk_of_map(DSC_TENSOR_MAPPING_ALL_TO_ALL, 1, 8, 1, 0, 2), data,
                                       bytes, F32, NULL, &work));
  WALK(DSC_ERR_OVERFLOW,
       dsc_tensor_map_backward(W, chunk_of_map(gather, huge, 8, 2, 0, 2), data, bytes, F32, NULL, &work));
  expect_no_effect();
}

static void tensor_map_v(void) {
  static const size_t other[] = {5, 3};
  const dsc_tensor_mapping_t gather = DSC_TENSOR_MAPPING_GATHER, exchange = DSC_TENSOR_MAPPING_ALL_TO_ALL;
  start();
  WALK_BAD_HANDLES(
      WALK_COMM, dsc_comm_t,
      dsc_tensor_map_forward(bad, uneven_map(gather, 1, lengths, NULL, 1), data, bytes, F32, NULL, &work));
  WALK_INVALID(dsc_tensor_map_forward(W, uneven_map(0, 1, lengths, NULL, 1), data, bytes, F32, NULL, &work));
  WALK_INVALID(
      dsc_tensor_map_forward(W, uneven_map(gather, 1, lengths, NULL, 1), NULL, bytes, F32, NULL, &work));
  WALK_INVALID(
      dsc_tensor_map_forward(W, uneven_map(gather, 1, lengths, NULL, 1), data, NULL, F32, NULL, &work));
  WALK_INVALID(
      dsc_tensor_map_forward(W, uneven_map(gather, 1, NULL, other, 1), data, bytes, F32, NULL, &work));
  WALK_INVALID(
      dsc_tensor_map_forward(W, uneven_map(gather, 1, lengths, other, 1), data, bytes, F32, NULL, &work));
  WALK_INVALID(
      dsc_tensor_map_forward(W, uneven_map(gather, 1, lengths, NULL, 1), data, bytes, 14, NULL, &work));
  WALK_INVALID(
      dsc_tensor_map_forward(W, uneven_map(exchange, 1, lengths, NULL, 1), data, bytes, F32, NULL, &work));
  WALK_INVALID(dsc_tensor_map_forward(W, uneven_map(exchange, 1, lengths, other, 1), data, bytes, F32, NULL,
                                      &work)); /* a rank sends itself another length than it receives */
  WALK_INVALID(dsc_tensor_map_forward(W,
                                      uneven_map(DSC_TENSOR_MAPPING_SEQUENCE_TO_HIDDEN, 1, lengths, NULL, 1),
                                      data, bytes, F32, NULL, &work));
  WALK(DSC_ERR_OVERFLOW,
       dsc_tensor_map_forward(W, uneven_map(gather, 1, too_long, NULL, 1), data, bytes, F32, NULL, &work));
  WALK(DSC_ERR_OVERFLOW,
       dsc_tensor_map_forward(W, uneven_map(DSC_TENSOR_MAPPING_SEQUENCE_TO_HIDDEN, huge, lengths, lengths, 1),
                              data, bytes, F32, NULL, NULL));
  expect_no_effect();
}

static void group_begin_and_end(void) {
  start();
  void* memory = bytes;
  dsc_comm_t* group = W;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_batch_begin(bad));
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_batch_end(bad, NULL, &work));
  WALK(DSC_ERR_STATE, dsc_batch_end(W, NULL, &work));
  WALK(DSC_OK, dsc_batch_begin(W));
  WALK(DSC_ERR_STATE, dsc_batch_begin(W));
  WALK(DSC_ERR_STATE, dsc_monitored_barrier(W, 100));
  WALK(DSC_ERR_STATE, dsc_comm_split(W, 0, 0, NULL, &group));
  WALK(DSC_ERR_STATE, dsc_mem_alloc(W, 4096, DSC_MEMORY_KIND_HOST, &memory));
  WALK(DSC_ERR_STATE, dsc_comm_finalize(W));
  WALK_INVALID(dsc_barrier(W, NULL, &work)); /* inside of a batch an operation has no work */
  WALK_INVALID(dsc_send(W, NULL, 4, F32, 1, NULL, NULL));
  WALK(DSC_ERR_UNSUPPORTED, dsc_batch_end(W, stream, &work)); /* the batch stays open */
  WALK(DSC_OK, dsc_batch_end(W, NULL, NULL));
  EXPECT(group == NULL && memory == NULL);
  expect_no_effect();
}

static void monitored_barrier(void) {
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_monitored_barrier(bad, 100));
  WALK_INVALID(dsc_monitored_barrier(W, 0));
  WALK_INVALID(dsc_monitored_barrier(W, -1));
}

static int32_t keep(void* context, const dsc_op_call_t* call) {
  (void)context, (void)call;
  return 0;
}

static void op_create_premul(void) {
  dsc_op_t op = 99;
  WALK_INVALID(dsc_op_create_premul(2.0, NULL));
  WALK_INVALID(dsc_op_create_premul(0.0 / zero, &op));
  EXPECT(op == 0);
  WALK_INVALID(dsc_op_create_premul(1.0 / zero, &op));
  WALK(DSC_OK, dsc_op_create_premul(2.0, &op));
  EXPECT(op >= 1000);
  start();
  WALK(DSC_ERR_UNSUPPORTED, dsc_all_reduce(W, data, bytes, 4, DSC_DTYPE_I32, op, NULL, &work));
  expect_no_effect();
  WALK(DSC_OK, dsc_op_destroy(op));
  WALK_INVALID(dsc_all_reduce(W, data, bytes, 4, F32, op, NULL, &work));
}

static void op_create_user(void) {
  dsc_op_t op = 99;
  WALK_INVALID(dsc_op_create_user(keep, NULL, 1, 0, NULL));
  WALK_INVALID(dsc_op_create_user(NULL, NULL, 1, 0, &op));
  EXPECT(op == 0);
  WALK_INVALID(dsc_op_create_user(keep, NULL, 1, 2, &op));
  WALK_INVALID(dsc_op_create_user(keep, NULL, 1, -1, &op));
  WALK(DSC_OK, dsc_op_create_user(keep, NULL, 1, 1, &op));
  WALK(DSC_OK, dsc_op_destroy(op));
}

static void op_destroy(void) {
  WALK(DSC_OK, dsc_op_destroy(0));
  WALK_INVALID(dsc_op_destroy(DSC_OP_SUM));
  WALK_INVALID(dsc_op_destroy(-1));
  WALK_INVALID(dsc_op_destroy(INT32_MAX));
}

static void send_message(void) {
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_send(bad, data, 4, F32, 1, NULL, &work));
  WALK_INVALID(dsc_send(W, NULL, 4, F32, 1, NULL, &work));
  WALK_INVALID(dsc_send(W, data, 4, 0, 1, NULL, &work));
  WALK_INVALID(dsc_send(W, data, 4, F32, 0, NULL, &work)); /* rank 0 to itself */
  WALK_INVALID(dsc_send(W, data, 4, F32, 2, NULL, NULL));
  WALK_INVALID(dsc_send(W, data, 4, F32, -1, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED, dsc_send(W, data, 4, F32, 1, stream, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_send(W, data, huge * 4, F32, 1, NULL, &work));
  expect_no_effect();
}

static void receive_message(void) {
  start();
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_recv(bad, bytes, 4, F32, 1, NULL, &work));
  WALK_INVALID(dsc_recv(W, NULL, 4, F32, 1, NULL, &work));
  WALK_INVALID(dsc_recv(W, bytes, 4, 14, 1, NULL, &work));
  WALK_INVALID(dsc_recv(W, bytes, 4, F32, 0, NULL, &work)); /* rank 0 from itself */
  WALK_INVALID(dsc_recv(W, bytes, 4, F32, 2, NULL, NULL));
  WALK_INVALID(dsc_recv(W, bytes, 4, F32, INT32_MIN, NULL, &work));
  WALK(DSC_ERR_UNSUPPORTED, dsc_recv(W, bytes, 4, F32, 1, stream, &work));
  WALK(DSC_ERR_OVERFLOW, dsc_recv(W, bytes, huge * 4, F32, 1, NULL, &work));
  expect_no_effect();
}

static void work_test(void) {
  int32_t completed = 99;
  WALK_BAD_HANDLES(WALK_WORK, dsc_work_t, dsc_work_test(bad, &completed));
  WALK_INVALID(dsc_work_test(walk_world.work, NULL));
  EXPECT(completed == 99);
  WALK(DSC_OK, dsc_work_test(walk_world.work, &completed));
  EXPECT(completed == 1);
}

static void work_wait(void) {
  WALK_BAD_HANDLES(WALK_WORK, dsc_work_t, dsc_work_wait(bad, 0, NULL));
  WALK_INVALID(dsc_work_wait(walk_world.work, -2, NULL));
  WALK_INVALID(dsc_work_wait(walk_world.work, INT32_MIN, NULL));
  WALK(DSC_OK, dsc_work_wait(walk_world.work, 0, NULL));
  /* for an operation on host memory the host waits */
  WALK(DSC_OK, dsc_work_wait(walk_world.work, 0, stream));
}

static void work_synchronize(void) {
  WALK_BAD_HANDLES(WALK_WORK, dsc_work_t, dsc_work_synchronize(bad, -1));
  WALK_INVALID(dsc_work_synchronize(walk_world.work, -2));
  WALK(DSC_OK, dsc_work_synchronize(walk_world.work, -1));
}

static void work_error(void) {
  dsc_error_info_t info;
  memset(&info, 0x77, sizeof info);
  info.struct_size = sizeof info;
  WALK_BAD_HANDLES(WALK_WORK, dsc_work_t, dsc_work_error_info(bad, &info));
  WALK_INVALID(dsc_work_error_info(walk_world.work, NULL));
  info.struct_size = 8;
  WALK_INVALID(dsc_work_error_info(walk_world.work, &info));
  EXPECT(info.code == 0x77777777);
  info.struct_size = sizeof info;
  WALK(DSC_OK, dsc_work_error_info(walk_world.work, &info));
  EXPECT(info.code == DSC_OK && info.revoked == 0);
}

static void work_eventfd(void) {
  int32_t descriptor = 99;
  WALK_BAD_HANDLES(WALK_WORK, dsc_work_t, dsc_work_eventfd(bad, &descriptor));
  WALK_INVALID(dsc_work_eventfd(walk_world.work, NULL));
  EXPECT(descriptor == 99);
  WALK(DSC_OK, dsc_work_eventfd(walk_world.work, &descriptor));
  EXPECT(descriptor >= 0 && descriptor != 99);
}

static void work_destroy(void) {
  WALK(DSC_OK, dsc_work_destroy(NULL));
  WALK_BAD_HANDLES_BUT_NULL(WALK_WORK, dsc_work_t, dsc_work_destroy(bad));
}

static void progress(void) {
  WALK_BAD_HANDLES_BUT_NULL(WALK_COMM, dsc_comm_t, dsc_comm_progress(bad, 0));
  WALK_INVALID(dsc_comm_progress(W, -2));
  WALK_INVALID(dsc_comm_progress(NULL, INT32_MIN));
  WALK(DSC_OK, dsc_comm_progress(W, 0));
  WALK(DSC_OK, dsc_comm_progress(W, -1));
  WALK(DSC_OK, dsc_comm_progress(NULL, 1));
}

static void mem_alloc(void) {
  void* memory = data;
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_mem_alloc(bad, 4096, DSC_MEMORY_KIND_HOST, &memory));
  EXPECT(memory == NULL);
  WALK_INVALID(dsc_mem_alloc(W, 4096, DSC_MEMORY_KIND_HOST, NULL));
  WALK_INVALID(dsc_mem_alloc(W, 0, DSC_MEMORY_KIND_HOST, &memory));
  WALK_INVALID(dsc_mem_alloc(W, 4096, 0, &memory));
  WALK_INVALID(dsc_mem_alloc(W, 4096, 3, &memory));
  WALK(DSC_ERR_UNSUPPORTED, dsc_mem_alloc(W, 4096, DSC_MEMORY_KIND_DEVICE, &memory));
  WALK(DSC_ERR_OVERFLOW, dsc_mem_alloc(W, SIZE_MAX, DSC_MEMORY_KIND_HOST, &memory));
  EXPECT(memory == NULL);
}

static void mem_register(void) {
  WALK_BAD_HANDLES(WALK_COMM, dsc_comm_t, dsc_mem_register(bad, data, sizeof data));
  WALK_INVALID(dsc_mem_register(W, NULL, 1));
  WALK_INVALID(dsc_mem_register(W, data, 0));
  WALK(DSC_ERR_OVERFLOW, dsc_mem_register(W, data, SIZE_MAX));
  WALK(DSC_ERR_OVERFLOW, dsc_mem_register(W, (void*)UINTPTR_MAX, 1));
}

static void mem_unregister(void) {
  WALK(DSC_OK, dsc_mem_unregister(NULL));
  WALK_INVALID(dsc_mem_unregister(data));
  WALK_INVALID(dsc_mem_unregister(walk_world.memory));
  WALK_INVALID(dsc_mem_unregister((void*)UINTPTR_MAX));
}

static void mem_retain(void) {
  void* memory = data;
  WALK_INVALID(dsc_mem_retain(NULL, &memory));
  EXPECT(memory == NULL);
  WALK_INVALID(dsc_mem_retain(data, &memory));
  WALK_INVALID(dsc_mem_retain((void*)UINTPTR_MAX, &memory));
  WALK_INVALID(dsc_mem_retain(walk_world.memory, NULL));
  WALK(DSC_OK, dsc_mem_retain((char*)walk_world.memory + 4095, &memory));
  EXPECT(memory == walk_world.memory);
  WALK(DSC_OK, dsc_mem_free(memory));
}

static void mem_free(void) {
  WALK(DSC_OK, dsc_mem_free(NULL));
  WALK_INVALID(dsc_mem_free(data));
  WALK_INVALID(dsc_mem_free((void*)UINTPTR_MAX));
  WALK_INVALID(dsc_mem_free((char*)walk_world.memory + 1));
  WALK_INVALID(dsc_mem_free((char*)walk_world.memory + 4095));
  WALK(DSC_OK, dsc_mem_free(walk_world.memory));
  WALK_INVALID(dsc_mem_free(walk_world.memory));
}

const walk_step_t walk_operations[] = {
    {"dsc_all_reduce", all_reduce},
    {"dsc_broadcast", broadcast},
    {"dsc_broadcast_shape", broadcast_shape},
    {"dsc_all_gather", all_gather},
    {"dsc_reduce_scatter", reduce_scatter},
    {"dsc_reduce", reduce},
    {"dsc_gather", gather},
    {"dsc_scatter", scatter},
    {"dsc_all_to_all", all_to_all},
    {"dsc_all_gather_v", all_gather_v},
    {"dsc_reduce_scatter_v", reduce_scatter_v},
    {"dsc_all_to_all_v", all_to_all_v},
    {"dsc_tensor_map_forward", tensor_map},
    {"dsc_tensor_map_options_init", tensor_map_v},
    {"dsc_tensor_map_backward", tensor_map_chunk},
    {"dsc_monitored_barrier", monitored_barrier},
    {"dsc_batch_begin", group_begin_and_end},
    {"dsc_batch_end", group_begin_and_end},
    {"dsc_op_create_premul", op_create_premul},
    {"dsc_op_create_user", op_create_user},
    {"dsc_op_destroy", op_destroy},
    {"dsc_barrier", barrier},
    {"dsc_send", send_message},
    {"dsc_recv", receive_message},
    {"dsc_work_test", work_test},
    {"dsc_work_wait", work_wait},
    {"dsc_work_synchronize", work_synchronize},
    {"dsc_work_error_info", work_error},
    {"dsc_work_eventfd", work_eventfd},
    {"dsc_work_destroy", work_destroy},
    {"dsc_mem_alloc", mem_alloc},
    {"dsc_comm_progress", progress},
    {"dsc_mem_retain", mem_retain},
    {"dsc_mem_register", mem_register},
    {"dsc_mem_unregister", mem_unregister},
    {"dsc_mem_free", mem_free},
    {NULL, NULL},
};
