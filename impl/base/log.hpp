// Log records are formatted at once, queued, and delivered by one thread. Nothing is recorded unless somebody
// listens, except what remind() says.
#pragma once

#include <cstdint>

#include "dsc/types.h"

namespace dsc {

bool log_enabled(int32_t level) noexcept;

// After this time an operation that waits for other ranks is logged, once: 10 s where warnings are wanted.
// Where nobody has said what is to be logged, it is 30 s, and remind() writes to the standard error stream
// all the same, because a program that hangs without a word is what people ask about most. Otherwise it is
// never.
int64_t late_report_ns() noexcept;

// Logs at level warn, also where DSC_LOG is not set and no listener is registered; the text then goes to
// stderr.
void remind(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

void log(int32_t level, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

}  // namespace dsc
