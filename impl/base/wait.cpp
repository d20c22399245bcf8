#include "base/wait.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"

namespace dsc {

bool wait_ready(int fd, short events, Deadline deadline) {
  // The time-out of poll() is an int, so long waits are split; the loop checks the deadline after each part.
  constexpr int64_t kLongestMs = 60'000;
  pollfd entry{fd, events, 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min(deadline.remaining_ms(), kLongestMs)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail_errno(errno, "poll");
    if (deadline.passed()) return false;
  }
}

void sleep_until(Deadline deadline) { wait_ready(-1, 0, deadline); }

}  // namespace dsc
