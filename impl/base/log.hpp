// Log records are formatted at once, queued, and delivered by one thread. Nothing is recorded unless somebody
// listens.
#pragma once

#include <cstdint>

#include "dsc/types.h"

namespace dsc {

bool log_enabled(int32_t level) noexcept;
void log(int32_t level, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

}  // namespace dsc
