// Functions that wait for a descriptor or for a point in time.
#pragma once

#include "base/clock.hpp"

namespace dsc {

// Waits until fd is ready for `events`. Returns false if the deadline passes first. Throws SYSTEM.
bool wait_ready(int fd, short events, Deadline deadline);

void sleep_until(Deadline deadline);

}  // namespace dsc
