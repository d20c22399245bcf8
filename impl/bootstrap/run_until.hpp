// Timeouts for calls into libraries that have none.
#pragma once

#include <functional>

#include "base/clock.hpp"

namespace dsc {

// Runs `body` on a separate thread and rethrows its exception. Throws TIMEOUT with the text `late` after the
// deadline. The body may still be running then, so it must own everything that it uses.
void run_until(Deadline deadline, const char* thread_name, const std::function<void()>& body,
               const char* late);

}  // namespace dsc
