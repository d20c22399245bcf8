// Waiting for a descriptor, or for a time.
#pragma once

#include "base/clock.hpp"

namespace dsc {

// Waits until fd is ready for `events`, at most to the deadline. False: not yet.
bool wait_ready(int fd, short events, Deadline deadline);

void sleep_until(Deadline deadline);

}  // namespace dsc
