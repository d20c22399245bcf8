// Element-wise reductions and conversions on host memory.
//
// The bits of a result depend on the values and the order of the sources, and on nothing else: not on the
// vector instructions of the machine, alignment, position in the array, how the array was cut into chunks, or
// the caller's floating-point mode (rounding is to nearest even, denormals count; the caller's mode is put
// back).
//
// - Floats are combined in source order ((s0 + s1) + s2) ...; those of 8 and 16 bits in f32, rounded once at
// the end. What is too large becomes infinity, in f8e4m3, which has none, NaN.
// - Max and min are IEEE 754-2019 maximum and minimum: a NaN wins, and -0 < +0, so their order does not
// matter.
// - A NaN result is the type's positive quiet NaN without payload, since which payload an addition of two
// NaNs keeps
//   is up to processor and compiler.
// - Integers wrap.
// - Bool is true for any byte but 0, results are 0 and 1: sum, max and bor are its or, prod, min and band its
// and, bxor tells whether an odd number is true.
//
// Pointers need not be aligned. A destination may be exactly one of the sources, and must not overlap any in
// part.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dtype/dtype.hpp"

namespace dsc {

struct UserOp;  // dtype/user_op.hpp

struct ReduceSpec {
  int32_t dtype;
  int32_t op;
  int32_t divisor = 1;           // for AVG: number of ranks; one true division after the sum
  double prescale = 1.0;         // each input is multiplied by this as it is read; floats only
  bool non_temporal = false;     // store past the caches; worth it beyond the last-level cache only
  const UserOp* user = nullptr;  // when set it replaces op, on any type; no divisor, no prescale
};

// Inputs that are NaN or infinite. The first one is that of the lowest source, then of the lowest index.
struct NonFinite {
  uint64_t count = 0;
  int source = -1;  // -1: none
  size_t index = 0;

  // Adds what was found in the part of the arrays that starts at element `start`.
  void add(const NonFinite& part, size_t start);
};

// dsts[d][i] = op over all s, in order, of srcs[s][i], for every d. Sources are read once, without a
// temporary. With a report, adds the non-finite elements of all sources to it; integers and bool have none.
// Throws UNSUPPORTED when the op does not exist for the type, CALLBACK when a user operation fails.
void reduce(const ReduceSpec& spec, const void* const* srcs, int src_count, void* const* dsts, int dst_count,
            size_t count, NonFinite* report = nullptr);

// dst = src * factor, dst = src / divisor (true division): the number is rounded to the accumulation type
// (f64 for f64, else f32), the result once. Floats only.
void multiply(int32_t dtype, void* dst, const void* src, size_t count, double factor);
void divide(int32_t dtype, void* dst, const void* src, size_t count, double divisor);

// dst += src
void add(int32_t dtype, void* dst, const void* src, size_t count);

// Converts between f32 and f16, bf16, f8e4m3 or f8e5m2, rounding to nearest even; the same type copies bytes.
void cast(int32_t dst_dtype, void* dst, int32_t src_dtype, const void* src, size_t count);

// memcpy, if asked with stores past the caches.
void copy(void* dst, const void* src, size_t bytes, bool non_temporal);

// memcpy that leaves the source's cache lines with this processor alone, as if it had written them: whoever
// writes them next, here or elsewhere, does so at once. Nobody else may be using the source.
void take(void* dst, void* src, size_t bytes);

}  // namespace dsc
