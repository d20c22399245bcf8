// An all-reduce of rows, followed by the addition of a residual and by RMSNorm.
#pragma once

#include <cstddef>

#include "comm/comm.hpp"
#include "tensor_parallel/rms_norm_rows.hpp"

namespace dsc {

// Arrays of `tokens` rows.
struct RmsNormRows {
  size_t tokens = 0;
  const void* input = nullptr;     // this rank's contribution to the sum
  const void* residual = nullptr;  // null if nothing is added
  void* residual_out = nullptr;    // rows before they are normalized; null if not needed
  void* output = nullptr;
};

// Collective. dsc_all_reduce_rms_norm() describes the computation.
void all_reduce_rms_norm(Comm& comm, const RmsNorm& norm, const RmsNormRows& rows);

}  // namespace dsc
