// Element-wise reductions and conversions on host memory.
//
// The bits of a result depend only on the values and the order of the sources. They do not depend on the
// machine's vector instructions, alignment, position in the array, division into chunks, or the caller's
// floating-point mode. Results are rounded to nearest even, denormals are not flushed to zero, and the
// caller's mode is restored.
//
// - Floats are combined in source order: ((s0 + s1) + s2) and so on. Floats of 8 and 16 bits are combined in
//   f32 and rounded once at the end. Values that are too large become infinity, or NaN in f8e4m3, which has
//   no infinity.
// - Max and min are maximum and minimum of IEEE 754-2019: NaN propagates, and -0 < +0, so the order of the
//   sources does not matter.
// - A NaN result is the type's positive quiet NaN without payload. Processors and compilers differ in the
//   payload that an addition of two NaNs keeps.
// - Integers wrap around.
// - A bool is true for any byte except 0, and results are 0 or 1. Sum, max and bor mean "or"; prod, min and
//   band mean "and". bxor is true if an odd number of inputs is true.
//
// Pointers need not be aligned. A destination may be identical to one of the sources, but must not overlap a
// source in part.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "dtype/dtype.hpp"

namespace dsc {

struct UserOp;  // dtype/user_op.hpp

inline constexpr int kAllDestinations = INT_MAX;

// Describes a reduction.
struct ReduceSpec {
  int32_t dtype;
  int32_t op;
  int32_t divisor = 1;    // for AVG: number of ranks; the sum is divided by it once
  double prescale = 1.0;  // factor that multiplies each input; floats only
  // The number of first destinations whose stores bypass the caches. This is faster only if the data exceeds
  // the last-level cache.
  int streamed = 0;
  const UserOp* user = nullptr;  // replaces `op` if set, for any type; not combined with divisor or prescale
};

// Inputs that are NaN or infinite. `source` and `index` describe the first one: of the lowest source, and
// within it of the lowest index.
struct NonFinite {
  uint64_t count = 0;
  int source = -1;  // -1: none was found
  size_t index = 0;

  // Adds the result for the part of the arrays that starts at element `start`.
  void add(const NonFinite& part, size_t start);
};

// Computes dsts[d][i] = op over all s, in order, of srcs[s][i], for every d. Each source is read once,
// without a temporary array. If `report` is not null, the non-finite elements of all sources are added to it;
// integers and bool have none. Throws UNSUPPORTED if the operation does not exist for the type, CALLBACK if a
// user-defined operation fails.
void reduce(const ReduceSpec& spec, const void* const* srcs, int src_count, void* const* dsts, int dst_count,
            size_t count, NonFinite* report = nullptr);

// Compute dst = src * factor and dst = src / divisor (true division). The factor or divisor is rounded to the
// accumulation type (f64 for f64, otherwise f32), and the result is rounded once. For floats only.
void multiply(int32_t dtype, void* dst, const void* src, size_t count, double factor);
void divide(int32_t dtype, void* dst, const void* src, size_t count, double divisor);

// Computes dst += src.
void add(int32_t dtype, void* dst, const void* src, size_t count);

// Converts between f32 and f16, bf16, f8e4m3 or f8e5m2, rounding to nearest even. If both types are equal,
// copies the bytes.
void cast(int32_t dst_dtype, void* dst, int32_t src_dtype, const void* src, size_t count);

// Copies like memcpy, or nothing if both addresses are equal. They may be null if there are no bytes. If
// `non_temporal` is set, the stores bypass the caches. Large data must be copied with this function, because
// memcpy is very slow for some addresses on some processors.
void copy_bytes(void* dst, const void* src, size_t bytes, bool non_temporal = false) noexcept;

// Copies like memcpy, and also rewrites the source with its own contents. The source's cache lines are then
// exclusive to this processor, so that the next write to them is fast. No other thread may use the source
// meanwhile. If `non_temporal` is set, the stores to `dst` bypass the caches.
void take(void* dst, void* src, size_t bytes, bool non_temporal = false);

}  // namespace dsc
