/* What a reduction of floating-point numbers may give, whatever the order of its operations and where it
 * rounds: computed in long double, with a bound for each element. NCCL promises no bits. */
#ifndef TESTS_SUPPORT_BOUNDS_H
#define TESTS_SUPPORT_BOUNDS_H

#include <dsc/dsc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maxima, minima and integers leave no choice. */
bool has_bounds(dsc_op_t op, dsc_dtype_t dtype);

typedef struct stray {
  size_t at;
  double came, expected, bound;
} stray_t;

/* The result of reduce_reference() with the same arguments, or how the first element differs that is too far
 * off. */
bool is_within_bounds(const void* result, size_t first, size_t count, dsc_dtype_t dtype, dsc_op_t op,
                      uint64_t seed, int32_t n, stray_t* stray);

#endif /* TESTS_SUPPORT_BOUNDS_H */
