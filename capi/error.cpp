#include "dsc/error.h"

#include "base/guard.hpp"
#include "control/call.hpp"
#include "dtype/dtype.hpp"

const char* dsc_result_name(dsc_result_t result) { return dsc::result_name(result); }

const char* dsc_last_error_message(void) { return dsc::last_error().message; }

const char* dsc_dtype_name(dsc_dtype_t dtype) {
  return dsc::is_dtype(dtype) ? dsc::dtype_name(dtype) : "unknown";
}

dsc_result_t dsc_dtype_bytes(dsc_dtype_t dtype, size_t* bytes) {
  return dsc::guard_pure(__func__, [&] {
    if (!bytes) dsc::fail(DSC_ERR_INVALID_ARG, "bytes is NULL");
    if (!dsc::is_dtype(dtype))
      dsc::fail(DSC_ERR_INVALID_ARG, "dtype is %d, expected 1 (i8) to 13 (bool)", dtype);
    *bytes = dsc::dtype_bytes(dtype);
  });
}

const char* dsc_op_name(dsc_op_t op) {
  if (op >= dsc::kUserOp) return "custom";
  return dsc::is_op(op) ? dsc::op_name(op) : "unknown";
}
