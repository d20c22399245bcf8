/* Operations described as data: fill the buffers, call, compare with the reference. */
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

/* Where the buffers lie. Shared: memory of dsc_mem_alloc(), of which a rank has two pieces. */
typedef enum {
  PLAIN,
  PLAIN_IN_PLACE,
  PLAIN_MISALIGNED,
  SHARED,
  SHARED_IN_PLACE,
  SHARED_OFFSETS,    /* another place on every rank */
  SHARED_MISALIGNED, /* another one of 1 to 63 bytes on every rank */
  SHARED_TWO_PIECES, /* send in the one, recv in the other */
  SEND_SHARED,       /* recv plain */
  RECV_SHARED,       /* send plain */
  SOME_RANKS_SHARED, /* even ranks shared, odd ones plain */
  PIECES_DIFFER,     /* even ranks use one piece, odd ones the other */
  LAYOUTS
} layout_t;

typedef struct operation {
  kind_t kind;
  dsc_dtype_t dtype;
  dsc_op_t op;
  int32_t root; /* or the peer of a message */
  size_t count;
  layout_t layout;
  uint64_t seed; /* the inputs; ranks use seed + rank */
} operation_t;

/* A rank's memory for one operation at a time. */
typedef struct arena {
  rank_t* self;
  dsc_comm_t* comm;
  int32_t rank; /* in comm */
  int32_t size;
  size_t half; /* bytes of room for either buffer */
  char* plain;
  char* device; /* with DSC_TEST_DEVICE: plain buffers lie here, and plain is their mirror */
  char* shared[2];
} arena_t;

/* The buffers of one operation, NULL where it has none. */
typedef struct buffers {
  char* send;
  char* recv;
  size_t send_bytes;
  size_t recv_bytes;
} buffers_t;

/* Whether there is such an operation where its buffers lie: NCCL knows no bitwise ones, but those of bool
 * that are a maximum or a minimum. */
bool is_offered(const arena_t* arena, const operation_t* operation);

/* Collective. `bytes` is the largest buffer. */
int arena_open(arena_t* arena, rank_t* self, dsc_comm_t* comm, size_t bytes);
int arena_close(arena_t* arena);

/* One of `parts` equal pieces of an arena, for operations that run at the same time. */
arena_t arena_part(const arena_t* arena, size_t index, size_t parts);

/* Places the buffers, fills them and the guards around them. */
buffers_t prepare(const arena_t* arena, const operation_t* operation);
dsc_result_t call(dsc_comm_t* comm, const operation_t* operation, const buffers_t* buffers,
                  dsc_work_t** work);
/* Output, guards, and inputs that must not change. Every bit of the output; on real devices within bounds. */
int verify(const arena_t* arena, const operation_t* operation, const buffers_t* buffers);
/* The same with the output within the bounds of bounds.h, wherever it was made. */
int verify_within_bounds(const arena_t* arena, const operation_t* operation, const buffers_t* buffers);
/* Nothing was written at all. */
int verify_untouched(const arena_t* arena, const operation_t* operation, const buffers_t* buffers);

/* Prepares, calls and waits, verifies. */
int check_operation(const arena_t* arena, const operation_t* operation);

const char* kind_name(kind_t kind);
/* Whether a buffer holds a part for every rank. */
bool kind_has_parts(kind_t kind);

#endif /* TESTS_SUPPORT_TRAFFIC_H */
