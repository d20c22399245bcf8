// A store that the threads of one process share.
#pragma once

#include "base/mutex.hpp"
#include "store/key_table.hpp"
#include "store/store.hpp"

namespace dsc {

class MemoryStore final : public Store {
 public:
  explicit MemoryStore(StoreLimits limits = {}) : table_(limits) {}

  StoreReply perform(const StoreRequest& request, Deadline deadline) override;

 private:
  Mutex mutex_;
  Condition changed_;
  KeyTable table_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
