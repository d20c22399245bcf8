/* Calls every function of the C ABI with every kind of wrong handle and argument. Each wrong call returns its
 * exact code, names its function in the error, and does not write its outputs. Afterwards the right call
 * works. */
#ifndef TESTS_UNIT_CAPI_WALK_H
#define TESTS_UNIT_CAPI_WALK_H

#include <dsc/dsc.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct walk_step {
  const char* function;
  void (*walk)(void);
} walk_step_t;

/* One list of steps per file. NULL ends a list. */
extern const walk_step_t walk_pure[], walk_init[], walk_comm[], walk_operations[], walk_recovery[],
    walk_reducer[], walk_features[], walk_sharded[], walk_tied[], walk_pipe[], walk_simulate[], walk_mesh[],
    walk_store[], walk_trace[], walk_cross_entropy[], walk_rms_norm[], walk_context_parallel[],
    walk_expert_parallel[];

/* The objects that exist during the walk. This thread is rank 0 of two ranks. */
typedef struct walk_world {
  dsc_comm_t* world;
  dsc_comm_t* alone; /* a group that has only this rank */
  dsc_work_t* work;  /* a work that is complete */
  dsc_bucket_reducer_t* reducer;
  dsc_join_t *join, *stale_join;             /* created and destroyed by the steps of the walk */
  dsc_moe_plan_t *moe_plan, *stale_moe_plan; /* the same for plans */
  dsc_sharded_t* sharded;                    /* in the group `alone`: stage 3, two units of 8 elements */
  dsc_ring_t* ring;                          /* in the group `alone`: blocks and gradients of 32 bytes */
  /* key "embed" of 8 elements on stages 0 and 1, key "alone" on stage 1 */
  dsc_tied_layers_t* tied;
  dsc_pipe_schedule_t* schedule; /* "1f1b", stage 1 of 4, 8 micro-batches */
  dsc_pipe_report_t* report;     /* of the schedule above, with default costs */
  dsc_mesh_t* mesh;              /* "tp" 2, "dp" 3, "tp-dp" */
  dsc_store_t* store;            /* "memory://" */
  void* memory;                  /* 4,096 bytes from dsc_mem_alloc() */
} walk_world_t;

extern walk_world_t walk_world;

/* Checks that a call returned `expected`. If the call failed, the last error must name its function. */
void walk_check(const char* file, int line, const char* call, dsc_result_t expected, dsc_result_t came);

/* Checks by an all-reduce with the other rank that the world still works. */
void walk_world_works(void);

typedef enum {
  WALK_COMM,
  WALK_WORK,
  WALK_REDUCER,
  WALK_JOIN,
  WALK_SCHEDULE,
  WALK_MESH,
  WALK_STORE,
  WALK_TIED,
  WALK_REPORT,
  WALK_SHARDED,
  WALK_RING,
  WALK_MOE_PLAN
} walk_kind_t;

/* Handles that are not valid for `kind`: NULL, a destroyed handle, a handle of another kind, wrong tag bits.
 * NULL is included only on request. */
size_t walk_bad_handles(void);
void* walk_bad_handle(walk_kind_t kind, size_t index);

#define WALK(expected, call) walk_check(__FILE__, __LINE__, #call, (expected), (call))
#define WALK_INVALID(call) WALK(DSC_ERR_INVALID_ARG, call)

/* Makes `call` with each wrong handle, which has the name `bad`. */
#define WALK_BAD_HANDLES(kind, type, call)                      \
  for (size_t bad_i = 0; bad_i < walk_bad_handles(); ++bad_i) { \
    type* const bad = walk_bad_handle((kind), bad_i);           \
    WALK(DSC_ERR_BAD_HANDLE, call);                             \
  }

/* Destroy functions accept NULL. NULL is the first of the wrong handles, so this macro skips it. */
#define WALK_BAD_HANDLES_BUT_NULL(kind, type, call)             \
  for (size_t bad_i = 1; bad_i < walk_bad_handles(); ++bad_i) { \
    type* const bad = walk_bad_handle((kind), bad_i);           \
    WALK(DSC_ERR_BAD_HANDLE, call);                             \
  }

void walk_expect(const char* file, int line, const char* condition, bool holds);
#define EXPECT(condition) walk_expect(__FILE__, __LINE__, #condition, (condition))

#endif /* TESTS_UNIT_CAPI_WALK_H */
