// Waits where an operation's failure is no news: on the way out of another failure, and on destruction.
#pragma once

#include "base/guard.hpp"
#include "comm/work.hpp"

namespace dsc {

// True when the operation has ended, well or not.
inline bool settle(Work& work, Deadline deadline) noexcept {
  guard_thread([&] { work.wait(deadline); }, [](const char*) {});
  return work.done();
}

}  // namespace dsc
