// Waits for an operation and ignores its failure, for cleanup after another failure and for destructors.
#pragma once

#include "base/guard.hpp"
#include "comm/work.hpp"

namespace dsc {

// Returns true if the operation has ended, successfully or not.
inline bool wait_ignoring_failure(Work& work, Deadline deadline) noexcept {
  guard_thread([&] { work.wait(deadline); }, [](const char*) {});
  return work.done();
}

}  // namespace dsc
