// Marks an object as in use for the duration of a call. A second call at the same time fails with BUSY
// instead of waiting.
#pragma once

#include <atomic>

#include "base/error.hpp"

namespace dsc {

class ExclusiveUse {
 public:
  explicit ExclusiveUse(std::atomic<bool>& in_use) : in_use_(in_use) {
    if (in_use_.exchange(true, std::memory_order_acquire))
      fail(
          DSC_ERR_BUSY,
          "another call is using this object: a call in another thread, or the call that runs this callback; "
          "expected that call to return first");
  }
  ~ExclusiveUse() { in_use_.store(false, std::memory_order_release); }
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;

 private:
  std::atomic<bool>& in_use_;
};

}  // namespace dsc
