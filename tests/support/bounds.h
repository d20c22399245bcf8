/* The allowed results of a floating-point reduction, for any order of operations and any place of rounding.
 * They are computed in long double, with a bound for each element. NCCL does not promise exact bits. */
#ifndef TESTS_SUPPORT_BOUNDS_H
#define TESTS_SUPPORT_BOUNDS_H

#include <dsc/dsc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False for maxima, minima and integers, whose results must be exact. */
bool has_bounds(dsc_op_t op, dsc_dtype_t dtype);

typedef struct stray {
  size_t at;
  double came, expected, bound;
} stray_t;

/* Compares with the result of reduce_reference() for the same arguments. If it returns false, `stray`
 * describes the first element that is out of bounds. */
bool is_within_bounds(const void* result, size_t first, size_t count, dsc_dtype_t dtype, dsc_op_t op,
                      uint64_t seed, int32_t n, stray_t* stray);

#endif /* TESTS_SUPPORT_BOUNDS_H */
