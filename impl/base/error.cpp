#include "base/error.hpp"

#include <array>
#include <cstdarg>
#include <cstring>

namespace dsc {
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

const char* result_name(dsc_result_t result) noexcept {
  if (result == DSC_IN_PROGRESS) return "DSC_IN_PROGRESS";
  if (result == DSC_TRUNCATED) return "DSC_TRUNCATED";
  if (result == DSC_DONE) return "DSC_DONE";
  if (result > 0 || result < DSC_ERR_INTERNAL) return "DSC_UNKNOWN_RESULT";
  return kErrorNames[static_cast<size_t>(-result)];
}

void fail(dsc_result_t code, const char* format, ...) {
  Failure failure;
  failure.code = code;
  va_list args;
  va_start(args, format);
  failure.text.add_list(format, args);
  va_end(args);
  throw Error(failure);
}

void fail_because_of(const Failure& cause, dsc_result_t code, const char* format, ...) {
  Failure failure = cause;
  failure.code = code;
  failure.text = {};
  va_list args;
  va_start(args, format);
  failure.text.add_list(format, args);
  va_end(args);
  throw Error(failure);
}

void fail_errno(int error, const char* format, ...) {
  Failure failure;
  failure.code = DSC_ERR_SYSTEM;
  failure.system_error = error;
  va_list args;
  va_start(args, format);
  failure.text.add_list(format, args);
  va_end(args);
  char reason[128];
  // The GNU version may return a static string instead of filling `reason`.
  const char* words = strerror_r(error, reason, sizeof reason);
  failure.text.add(": %s (errno %d)", words, error);
  throw Error(failure);
}

}  // namespace dsc
