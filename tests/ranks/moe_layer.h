/* A mixture-of-experts layer on this rank, forward and backward, and its comparison with the reference that
 * one process computes. */
#ifndef TESTS_RANKS_MOE_LAYER_H
#define TESTS_RANKS_MOE_LAYER_H

#include "moe_case.h"

/* A layer of this rank, with the buffers of both passes. */
typedef struct moe_layer {
  moe_sizes_t sizes;
  moe_tokens_t tokens[RANKS_MAX]; /* the tokens of each rank */
  moe_tokens_t* own;
  dsc_moe_plan_t* plan;
  dsc_moe_plan_info_t info;
  size_t bytes; /* of one element */
  char *rows, *expert_rows, *out, *returned, *weights;
  char *gradient, *row_gradients, *weight_gradients, *token_gradients;
} moe_layer_t;

int moe_layer_open(moe_layer_t* it, rank_t* self, const moe_sizes_t* sizes, uint64_t seed);
int moe_layer_close(moe_layer_t* it, rank_t* self);

double moe_number(const moe_layer_t* it, const char* rows, size_t row, size_t column);
void moe_set_number(const moe_layer_t* it, char* rows, size_t row, size_t column, double value);

/* A function that is called for each row of this rank in order: by expert, source, slot. moe_each_row()
 * returns 0, or the first other value that `visit` returns. */
typedef int (*moe_visit_t)(rank_t* self, moe_layer_t* it, size_t row, size_t expert, int32_t source,
                           size_t slot);

int moe_each_row(rank_t* self, moe_layer_t* it, moe_visit_t visit);
int moe_check_row(rank_t* self, moe_layer_t* it, size_t row, size_t expert, int32_t source, size_t slot);

/* Waits for the work of a call, if there is one. */
int moe_end(rank_t* self, dsc_work_t* work);

/* Blocking, or started and then awaited if `starts`. */
int moe_forward(rank_t* self, moe_layer_t* it, bool starts);
int moe_backward(rank_t* self, moe_layer_t* it, bool starts);

int moe_check_near(rank_t* self, const char* what, size_t at, double found, double expected, double bound);
int moe_check_layer(rank_t* self, moe_layer_t* it);
int moe_check_text(rank_t* self, const char* expected);

/* Sizes of a small layer, for tests over several hosts. */
moe_sizes_t moe_small_sizes(void);

#endif /* TESTS_RANKS_MOE_LAYER_H */
