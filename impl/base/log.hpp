// A log record is formatted by the caller, queued, and delivered by a background thread. Nothing is recorded
// unless somebody listens, except by remind().
#pragma once

#include <cstdint>

#include "dsc/types.h"

namespace dsc {

bool log_enabled(int32_t level) noexcept;

// Returns how long an operation waits for other ranks before this is logged once. The time is 10 s if
// warnings are requested. If DSC_LOG is unset and nobody requests records, it is 30 s, and remind() writes to
// the standard error stream. The reason is that users ask most often about programs that hang silently.
// Otherwise such operations are never logged.
int64_t late_report_ns() noexcept;

// Logs at level warn. If DSC_LOG is unset and nobody requests records, writes to the standard error stream.
void remind(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

void log(int32_t level, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

}  // namespace dsc
