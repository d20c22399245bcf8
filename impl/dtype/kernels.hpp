// The vectorized kernels behind reduce.hpp. They check neither their arguments nor the floating-point mode.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dtype/reduce.hpp"

namespace dsc {

// Arguments of a reduction kernel. Scales and the divisor must be 1 for integers and bool.
struct KernelArgs {
  const void* const* srcs;
  int src_count;
  void* const* dsts;
  int dst_count;
  size_t count;
  int32_t op;              // never AVG, which is SUM with a divisor
  double prescale = 1.0;   // factor for every source element
  double postscale = 1.0;  // factor of the result
  double divisor = 1.0;    // divisor of the result
  int streamed = 0;        // the number of first destinations whose stores bypass the caches
  NonFinite* report = nullptr;
};

using Kernel = void (*)(const KernelArgs&);
// Adds the non-finite elements of an array to the report, as elements of the source with the number `source`.
using ScanKernel = void (*)(const void* array, size_t count, int source, NonFinite& report);
using CastKernel = void (*)(void* dst, const void* src, size_t count);

// Each function returns the best kernel for this processor, or null if there is none for the type.
Kernel float_kernel(int32_t dtype);
Kernel half_kernel(int32_t dtype);
Kernel float8_kernel(int32_t dtype);
Kernel integer_kernel(int32_t dtype);  // includes bool
ScanKernel scan_kernel(int32_t dtype);

// Return kernels for conversion between f32 and the type.
CastKernel half_cast_kernel(int32_t dtype, bool to_f32);
CastKernel float8_cast_kernel(int32_t dtype, bool to_f32);

}  // namespace dsc
