#include "store/memory_store.hpp"

#include <algorithm>
#include <chrono>

namespace dsc {

StoreReply MemoryStore::perform(const StoreRequest& request, Deadline deadline) {
  constexpr int64_t kLongestWaitNs = 3600 * kNsPerSecond;  // a longer wait could overflow the clock
  const MutexLock lock(mutex_);
  while (true) {
    if (auto reply = table_.apply(request)) {
      if (changes(request.op)) changed_.notify_all();
      return *std::move(reply);
    }
    if (deadline.passed()) fail_missing(table_.missing(request));
    changed_.wait_for(mutex_, std::chrono::nanoseconds(std::min(deadline.remaining_ns(), kLongestWaitNs)));
  }
}

}  // namespace dsc
