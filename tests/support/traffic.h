/* Operations described as data: a test fills the buffers, calls the operation, and compares with the
 * reference. */
#ifndef TESTS_SUPPORT_TRAFFIC_H
#define TESTS_SUPPORT_TRAFFIC_H

#include "ranks.h"

typedef enum {
  ALL_REDUCE,
  BROADCAST,
  ALL_GATHER,
  REDUCE_SCATTER,
  REDUCE,
  GATHER,
  SCATTER,
  ALL_TO_ALL,
  ALL_GATHER_V, /* with lengths between 0 and count */
  REDUCE_SCATTER_V,
  ALL_TO_ALL_V, /* never in place */
  BARRIER,
  SEND,
  RECV,
  KINDS
} kind_t;

/* The kinds of buffers. Shared memory is from dsc_mem_alloc(), and a rank has two pieces of it. */
typedef enum {
  PLAIN,
  PLAIN_IN_PLACE,
  PLAIN_MISALIGNED,
  SHARED,
  SHARED_IN_PLACE,
  SHARED_OFFSETS,    /* at a different offset on every rank */
  SHARED_MISALIGNED, /* at a different offset of 1 to 63 bytes on every rank */
  SHARED_TWO_PIECES, /* send in one piece, recv in the other */
  SEND_SHARED,       /* recv is plain */
  RECV_SHARED,       /* send is plain */
  SOME_RANKS_SHARED, /* even ranks use shared memory, odd ranks plain memory */
  PIECES_DIFFER,     /* even ranks use one piece, odd ranks the other */
  LAYOUTS
} layout_t;

typedef struct operation {
  kind_t kind;
  dsc_dtype_t dtype;
  dsc_op_t op;
  int32_t root; /* or the peer of a message */
  size_t count;
  layout_t layout;
  uint64_t seed; /* selects the inputs; each rank uses seed + rank */
} operation_t;

/* A rank's memory for one operation at a time. */
typedef struct arena {
  rank_t* self;
  dsc_comm_t* comm;
  int32_t rank; /* the rank in comm */
  int32_t size;
  size_t half; /* bytes available for each buffer */
  char* plain;
  char* device; /* with DSC_TEST_DEVICE: plain buffers are here, and `plain` is their mirror */
  char* shared[2];
} arena_t;

/* The buffers of one operation. NULL if the operation has no such buffer. */
typedef struct buffers {
  char* send;
  char* recv;
  size_t send_bytes;
  size_t recv_bytes;
} buffers_t;

/* Returns whether the operation exists for its kind of memory. NCCL has no bitwise operations, except those
 * of bool that equal a maximum or a minimum. */
bool is_offered(const arena_t* arena, const operation_t* operation);

/* Collective. `bytes` is the size of the largest buffer. */
int arena_open(arena_t* arena, rank_t* self, dsc_comm_t* comm, size_t bytes);
int arena_close(arena_t* arena);

/* Returns one of `parts` equal pieces of an arena, for operations that run at the same time. */
arena_t arena_part(const arena_t* arena, size_t index, size_t parts);

/* Chooses the addresses of the buffers, fills the buffers and the guards around them. */
buffers_t prepare(const arena_t* arena, const operation_t* operation);
dsc_result_t call(dsc_comm_t* comm, const operation_t* operation, const buffers_t* buffers,
                  dsc_work_t** work);
/* Checks the output, the guards, and inputs that must not change. The output must be exact; on real devices
 * it must be within bounds. */
int verify(const arena_t* arena, const operation_t* operation, const buffers_t* buffers);
/* The same, but the output must only be within the bounds of bounds.h. */
int verify_within_bounds(const arena_t* arena, const operation_t* operation, const buffers_t* buffers);
/* Checks that nothing was written. */
int verify_untouched(const arena_t* arena, const operation_t* operation, const buffers_t* buffers);

/* Prepares, calls, waits and verifies. */
int check_operation(const arena_t* arena, const operation_t* operation);

const char* kind_name(kind_t kind);
/* Returns whether a buffer of this kind has a part for every rank. */
bool kind_has_parts(kind_t kind);

#endif /* TESTS_SUPPORT_TRAFFIC_H */
