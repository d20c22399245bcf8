// Converts time-outs that callers pass in milliseconds.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace dsc {

inline Deadline deadline_after(int32_t timeout_ms) {
  if (timeout_ms < -1) fail(DSC_ERR_INVALID_ARG, "timeout_ms is %d, expected 0 or more, or -1", timeout_ms);
  if (timeout_ms == 0) return {0};  // a deadline in the past, which saves reading the clock
  return timeout_ms == -1 ? Deadline::never() : Deadline::after_ms(timeout_ms);
}

}  // namespace dsc
