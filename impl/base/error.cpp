#include "base/error.hpp"

#include <cstdio>
#include <cstring>

namespace dsc {

Error::Error(dsc_result_t code, const char* text) noexcept : code_(code) {
  std::snprintf(text_, sizeof text_, "%s", text);
}

void fail(dsc_result_t code, const char* format, ...) {
  char text[Error::kTextBytes];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
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
  if (used >= 0 && static_cast<size_t>(used) < sizeof text)
    std::snprintf(text + used, sizeof text - static_cast<size_t>(used), ": %s (errno %d)", words, error);
  throw Error(DSC_ERR_SYSTEM, text);
}

}  // namespace dsc
