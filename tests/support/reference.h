/* The correct results of reductions, computed independently of the library: serially, in rank order. */
#ifndef TESTS_SUPPORT_REFERENCE_H
#define TESTS_SUPPORT_REFERENCE_H

#include <dsc/dsc.h>
#include <stddef.h>
#include <stdint.h>

size_t element_bytes(dsc_dtype_t dtype);

/* Returns whether the library supports the pair: averages need floating point, bitwise operations need
 * integers. */
int op_is_offered(dsc_op_t op, dsc_dtype_t dtype);

/* Writes elements first to first + count - 1 of the sequence for dtype and seed. Floating-point elements are
 * finite and never zero. */
void fill_elements(void* elements, size_t first, size_t count, dsc_dtype_t dtype, uint64_t seed);

/* Writes the same elements of the reduction of n sequences with the seeds seed, seed + 1, ... */
void reduce_reference(void* result, size_t first, size_t count, dsc_dtype_t dtype, dsc_op_t op, uint64_t seed,
                      int32_t n);

/* Returns a floating-point element. An infinity of an 8-bit float is returned as NaN. */
double load_real(const void* elements, size_t i, dsc_dtype_t dtype);

#endif /* TESTS_SUPPORT_REFERENCE_H */
