// Waiting for a descriptor or for a point in time.
#pragma once

#include "base/clock.hpp"

namespace dsc {

// Waits until fd is ready for `events` or the deadline passes; false in the latter case. Throws SYSTEM.
bool wait_ready(int fd, short events, Deadline deadline);

void sleep_until(Deadline deadline);

}  // namespace dsc
