/* A mixture-of-experts layer on all ranks, and the reference that one process computes. */
#ifndef TESTS_RANKS_MOE_CASE_H
#define TESTS_RANKS_MOE_CASE_H

#include "ranks.h"

enum { MOST_TOKENS = 12, MOST_K = 8, MOST_SLOTS = MOST_TOKENS * MOST_K };

/* Sizes, the same on all ranks except for the number of tokens. */
typedef struct moe_sizes {
  size_t experts, top_k, capacity, hidden;
  dsc_moe_drop_t drop;
  int32_t padded;
  dsc_dtype_t dtype;
  int32_t ranks;
} moe_sizes_t;

/* The tokens of one rank and the output of their router. */
typedef struct moe_tokens {
  size_t count;
  int32_t experts[MOST_SLOTS];
  double weights[MOST_SLOTS];
  bool kept[MOST_SLOTS]; /* the slot is sent and not dropped */
  char* values;          /* count x hidden elements */
} moe_tokens_t;

/* bf16 values are cut off, not rounded */
void moe_set(dsc_dtype_t dtype, void* elements, size_t i, double value);
void moe_set_weight(dsc_dtype_t dtype, void* weights, size_t i, double value);
double moe_weight(dsc_dtype_t dtype, const void* weights, size_t i);
size_t moe_weight_bytes(dsc_dtype_t dtype);

/* Makes random tokens of a rank, the same on every process. Rank 1 of more than two ranks has no tokens. */
void moe_tokens_open(moe_tokens_t* it, const moe_sizes_t* sizes, int32_t rank, uint64_t seed);
void moe_tokens_close(moe_tokens_t* it);

/* An expert's function of one number, and the slope of the function. */
double moe_expert(size_t expert, double x);
double moe_slope(size_t expert, double x);

dsc_result_t moe_plan(dsc_comm_t* comm, const moe_sizes_t* sizes, const moe_tokens_t* tokens,
                      dsc_moe_plan_t** plan);

/* Returns the rank that has the expert. */
int32_t moe_holder(const moe_sizes_t* sizes, size_t expert);

#endif /* TESTS_RANKS_MOE_CASE_H */
