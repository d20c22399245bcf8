#include "dsc/rms_norm.h"

#include <cfloat>

#include "base/guard.hpp"
#include "comm_call.hpp"
#include "host_array.hpp"
#include "tensor_parallel/rms_norm.hpp"

namespace {

using dsc::Array;
using dsc::check_apart;
using dsc::check_array;
using dsc::fail;

void check_norm(const dsc::RmsNorm& norm) {
  dsc::check_dtype(norm.dtype);
  const bool is_f64 = norm.dtype == DSC_DTYPE_F64;
  if (!is_f64 && norm.dtype != DSC_DTYPE_F32 && norm.dtype != DSC_DTYPE_BF16 && norm.dtype != DSC_DTYPE_F16)
    fail(DSC_ERR_UNSUPPORTED, "dtype is %s, expected f32, f64, bf16 or f16", dsc::dtype_name(norm.dtype));
  if (norm.hidden == 0) fail(DSC_ERR_INVALID_ARG, "hidden is 0, expected 1 or more");
  const double least = is_f64 ? DBL_MIN : static_cast<double>(FLT_MIN);
  const double most = is_f64 ? DBL_MAX : static_cast<double>(FLT_MAX);
  if (!(norm.epsilon >= least && norm.epsilon <= most))
    fail(DSC_ERR_INVALID_ARG, "epsilon is %g, expected %g to %g", norm.epsilon, least, most);
}

size_t bytes_of_rows(size_t tokens, const dsc::RmsNorm& norm) {
  const size_t row = dsc::checked_bytes(norm.hidden, norm.dtype, 1);
  if (tokens > 0 && row > SIZE_MAX / 2 / tokens)
    fail(DSC_ERR_OVERFLOW, "%zu tokens of %zu bytes do not fit the address space", tokens, row);
  return tokens * row;
}

void check_apart_or_same(const Array& one, const Array& other) {
  if (one.data != other.data) check_apart(one, other);
}

// Returns an array that may be NULL. If it is NULL, its size is 0.
Array optional(const char* name, const void* data, size_t bytes) { return {name, data, data ? bytes : 0}; }

void check_rows(const dsc::Comm& comm, const dsc::RmsNorm& norm, const dsc::RmsNormRows& rows) {
  const size_t bytes = bytes_of_rows(rows.tokens, norm), element = dsc::dtype_bytes(norm.dtype);
  const Array input{"input", rows.input, bytes}, output{"output", rows.output, bytes};
  const Array residual = optional("residual", rows.residual, bytes);
  const Array kept = optional("residual_out", rows.residual_out, bytes);
  const Array weight = optional("weight", norm.weight, norm.hidden * element);
  for (const Array& array : {input, residual, weight, kept, output}) check_array(comm, array, element);
  check_apart_or_same(output, input);
  check_apart_or_same(kept, input);
  check_apart_or_same(kept, residual);
  check_apart(output, residual);
  check_apart(output, weight);
  check_apart(kept, weight);
  check_apart(kept, output);
}

}  // namespace

dsc_result_t dsc_all_reduce_rms_norm(dsc_comm_t* comm, const void* input, const void* residual,
                                     const void* weight, size_t tokens, size_t hidden, dsc_dtype_t dtype,
                                     double epsilon, void* residual_out, void* output) {
  return dsc::guard(__func__, [&] {
    dsc::CommCall inside(comm);
    const dsc::RmsNorm norm{dtype, hidden, epsilon, weight};
    const dsc::RmsNormRows rows{tokens, input, residual, residual_out, output};
    check_norm(norm);
    check_rows(*inside, norm, rows);
    dsc::all_reduce_rms_norm(*inside, norm, rows);
  });
}
