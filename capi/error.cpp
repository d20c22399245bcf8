#include "dsc/error.h"

#include <array>

#include "base/guard.hpp"
#include "dtype/dtype.hpp"

namespace {

constexpr std::array kErrorNames = {
    "DSC_OK",
    "DSC_ERR_INVALID_ARG",
    "DSC_ERR_BAD_HANDLE",
    "DSC_ERR_STATE",
    "DSC_ERR_FORKED",
    "DSC_ERR_BUSY",
    "DSC_ERR_REENTRANT",
    "DSC_ERR_NOMEM",
    "DSC_ERR_NOSPACE",
    "DSC_ERR_SYSTEM",
    "DSC_ERR_TIMEOUT",
    "DSC_ERR_PEER_DEAD",
    "DSC_ERR_PEER_STALLED",
    "DSC_ERR_PEER_LEFT",
    "DSC_ERR_MISMATCH",
    "DSC_ERR_REVOKED",
    "DSC_ERR_AUTH",
    "DSC_ERR_PROTOCOL",
    "DSC_ERR_VERSION",
    "DSC_ERR_CONFIG",
    "DSC_ERR_ADDR_IN_USE",
    "DSC_ERR_NO_BACKEND",
    "DSC_ERR_BACKEND",
    "DSC_ERR_BACKEND_STUCK",
    "DSC_ERR_UNSUPPORTED",
    "DSC_ERR_OVERFLOW",
    "DSC_ERR_CALLBACK",
    "DSC_ERR_NONFINITE",
    "DSC_ERR_INTERNAL",
};
static_assert(kErrorNames.size() == 1 - DSC_ERR_INTERNAL);

}  // namespace

const char* dsc_result_name(dsc_result_t result) {
  if (result == DSC_IN_PROGRESS) return "DSC_IN_PROGRESS";
  if (result == DSC_DONE) return "DSC_DONE";
  if (result > 0 || result < DSC_ERR_INTERNAL) return "DSC_UNKNOWN_RESULT";
  return kErrorNames[static_cast<size_t>(-result)];
}

const char* dsc_last_error_message(void) { return dsc::last_error_message(); }

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

const char* dsc_op_name(dsc_op_t op) { return dsc::is_op(op) ? dsc::op_name(op) : "unknown"; }
