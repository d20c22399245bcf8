/* What reductions must give, written without a look at the library: serial, in rank order. */
#ifndef TESTS_SUPPORT_REFERENCE_H
#define TESTS_SUPPORT_REFERENCE_H

#include <dsc/dsc.h>
#include <stddef.h>
#include <stdint.h>

size_t element_bytes(dsc_dtype_t dtype);

/* Whether the pair is offered: averages need floating point, bitwise operations integers. */
int op_is_offered(dsc_op_t op, dsc_dtype_t dtype);

/* Elements first to first + count - 1 of the sequence that dtype and seed stand for; floating-point ones are
 * finite and never zero. */
void fill_elements(void* elements, size_t first, size_t count, dsc_dtype_t dtype, uint64_t seed);

/* The same elements of the combination of n sequences: seed, seed + 1, ... */
void reduce_reference(void* result, size_t first, size_t count, dsc_dtype_t dtype, dsc_op_t op, uint64_t seed,
                      int32_t n);

/* A floating-point element; infinities of 8-bit floats come as NaN. */
double load_real(const void* elements, size_t i, dsc_dtype_t dtype);

#endif /* TESTS_SUPPORT_REFERENCE_H */
