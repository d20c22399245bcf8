// Adds a timeout to calls into libraries that have none.
#pragma once

#include <functional>

#include "base/clock.hpp"

namespace dsc {

// Runs `body` on a separate thread and rethrows its exception. After the deadline, throws TIMEOUT with the
// text `late`. The body may still be running at that time, so it must own everything that it uses.
void run_until(Deadline deadline, const char* thread_name, const std::function<void()>& body,
               const char* late);

}  // namespace dsc
