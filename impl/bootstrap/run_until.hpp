// Calls into libraries that know no deadline.
#pragma once

#include <functional>

#include "base/clock.hpp"

namespace dsc {

// Runs `body` on a thread of its own and throws what it throws; after the deadline TIMEOUT with the text
// `late`. The body may come back later still, so it must own all that it touches.
void run_until(Deadline deadline, const char* thread_name, const std::function<void()>& body,
               const char* late);

}  // namespace dsc
