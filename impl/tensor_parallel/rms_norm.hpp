// An all-reduce of rows with the addition of a residual and RMSNorm.
#pragma once

#include <cstddef>

#include "comm/comm.hpp"
#include "tensor_parallel/rms_norm_rows.hpp"

namespace dsc {

// Arrays of `tokens` rows.
struct RmsNormRows {
  size_t tokens = 0;
  const void* input = nullptr;     // this rank's contribution to the sum
  const void* residual = nullptr;  // null: nothing is added
  void* residual_out = nullptr;    // rows before they are normalized; null: not needed
  void* output = nullptr;
};

// Collective, by the rules of dsc_all_reduce_rms_norm().
void all_reduce_rms_norm(Comm& comm, const RmsNorm& norm, const RmsNormRows& rows);

}  // namespace dsc
