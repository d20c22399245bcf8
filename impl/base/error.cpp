#include "base/error.hpp"

#include <array>
#include <cstdio>
#include <cstring>

#include "base/utf8.hpp"

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

// `bytes` is what a function such as snprintf returned.
void end_whole(char (&text)[Error::kTextBytes], int bytes) noexcept {
  if (bytes >= static_cast<int>(sizeof text)) text[utf8_whole(text)] = 0;
}

}  // namespace

Error::Error(dsc_result_t code, const char* text, const ErrorPlace& place) noexcept
    : code_(code), place_(place) {
  end_whole(text_, std::snprintf(text_, sizeof text_, "%s", text));
}

const char* result_name(dsc_result_t result) noexcept {
  if (result == DSC_IN_PROGRESS) return "DSC_IN_PROGRESS";
  if (result == DSC_TRUNCATED) return "DSC_TRUNCATED";
  if (result == DSC_DONE) return "DSC_DONE";
  if (result > 0 || result < DSC_ERR_INTERNAL) return "DSC_UNKNOWN_RESULT";
  return kErrorNames[static_cast<size_t>(-result)];
}

void fail(dsc_result_t code, const char* format, ...) {
  char text[Error::kTextBytes];
  va_list args;
  va_start(args, format);
  end_whole(text, std::vsnprintf(text, sizeof text, format, args));
  va_end(args);
  throw Error(code, text);
}

void fail_errno(int error, const char* format, ...) {
  char text[Error::kTextBytes];
  va_list args;
  va_start(args, format);
  const int used = std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  char reason[128];
  const char* words = strerror_r(error, reason, sizeof reason);  // GNU form: may return a static string
  end_whole(text, used);
  if (used >= 0 && static_cast<size_t>(used) < sizeof text)
    std::snprintf(text + used, sizeof text - static_cast<size_t>(used), ": %s (errno %d)", words, error);
  ErrorPlace place;
  place.system_error = error;
  throw Error(DSC_ERR_SYSTEM, text, place);
}

}  // namespace dsc
