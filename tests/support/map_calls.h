/* Calls of mappings with their options as arguments, for tests that try many options. */
#ifndef MAP_CALLS_H
#define MAP_CALLS_H

#include <dsc/dsc.h>

typedef enum { FORWARD = 1, BACKWARD = 2 } direction_t;

static inline dsc_tensor_map_options_t map_options(dsc_tensor_mapping_t mapping, size_t outer, size_t dim,
                                                   size_t inner) {
  dsc_tensor_map_options_t options;
  (void)dsc_tensor_map_options_init(&options, sizeof options);
  options.mapping = mapping;
  options.outer = outer;
  options.dim = dim;
  options.inner = inner;
  return options;
}

static inline dsc_result_t map_step(dsc_comm_t* comm, const dsc_tensor_map_options_t* options,
                                    direction_t direction, const void* send, void* recv, dsc_dtype_t dtype,
                                    void* stream, dsc_work_t** work) {
  if (direction == FORWARD) return dsc_tensor_map_forward(comm, options, send, recv, dtype, stream, work);
  return dsc_tensor_map_backward(comm, options, send, recv, dtype, stream, work);
}

static inline dsc_result_t map_even(dsc_comm_t* comm, dsc_tensor_mapping_t mapping, direction_t direction,
                                    const void* send, void* recv, size_t outer, size_t dim, size_t inner,
                                    dsc_dtype_t dtype, void* stream, dsc_work_t** work) {
  const dsc_tensor_map_options_t options = map_options(mapping, outer, dim, inner);
  return map_step(comm, &options, direction, send, recv, dtype, stream, work);
}

static inline dsc_result_t map_chunk(dsc_comm_t* comm, dsc_tensor_mapping_t mapping, direction_t direction,
                                     const void* send, void* recv, size_t outer, size_t dim, size_t inner,
                                     size_t chunk, size_t chunks, dsc_dtype_t dtype, void* stream,
                                     dsc_work_t** work) {
  dsc_tensor_map_options_t options = map_options(mapping, outer, dim, inner);
  options.chunk = chunk;
  options.chunks = chunks;
  return map_step(comm, &options, direction, send, recv, dtype, stream, work);
}

static inline dsc_result_t map_parts(dsc_comm_t* comm, dsc_tensor_mapping_t mapping, direction_t direction,
                                     const void* send, void* recv, size_t outer, const size_t* parts,
                                     const size_t* other_parts, size_t inner, dsc_dtype_t dtype, void* stream,
                                     dsc_work_t** work) {
  dsc_tensor_map_options_t options = map_options(mapping, outer, SIZE_MAX, inner);
  options.parts = parts;
  options.other_parts = other_parts;
  return map_step(comm, &options, direction, send, recv, dtype, stream, work);
}

static inline dsc_result_t exchange_heads(dsc_comm_t* comm, direction_t direction, const void* send,
                                          void* recv, size_t batch, size_t sequence, size_t heads,
                                          size_t head_dim, const size_t* sequence_parts,
                                          const size_t* head_parts, dsc_dtype_t dtype, void* stream,
                                          dsc_work_t** work) {
  dsc_sequence_heads_options_t options;
  (void)dsc_sequence_heads_options_init(&options, sizeof options);
  options.batch = batch;
  options.sequence = sequence;
  options.heads = heads;
  options.head_dim = head_dim;
  options.sequence_parts = sequence_parts;
  options.head_parts = head_parts;
  if (direction == FORWARD) return dsc_sequence_to_heads(comm, &options, send, recv, dtype, stream, work);
  return dsc_heads_to_sequence(comm, &options, send, recv, dtype, stream, work);
}

#endif /* MAP_CALLS_H */
