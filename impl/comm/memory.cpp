#include "comm/memory.hpp"

#include <map>

#include "base/error.hpp"
#include "base/mutex.hpp"
#include "control/memory.hpp"

namespace dsc {
namespace {

struct KeptMemory {
  Mutex mutex;
  std::map<void*, std::shared_ptr<void>> owners DSC_GUARDED_BY(mutex);
};

// The registry is never destroyed, because calls may come until the process ends.
KeptMemory& kept() {
  static KeptMemory* const instance = new KeptMemory;
  return *instance;
}

bool release_kept(void* memory) {
  std::shared_ptr<void> released;  // destroyed after the lock is given back
  const MutexLock lock(kept().mutex);
  const auto found = kept().owners.find(memory);
  if (found == kept().owners.end()) return false;
  released = std::move(found->second);
  kept().owners.erase(found);
  return true;
}

}  // namespace

void keep_memory(void* memory, std::shared_ptr<void> owner) {
  const MutexLock lock(kept().mutex);
  kept().owners.emplace(memory, std::move(owner));
}

void release_memory(void* memory) {
  if (!MemoryRegistry::release(memory) && !release_kept(memory))
    fail(DSC_ERR_INVALID_ARG, "memory is not the start of memory of dsc_mem_alloc that is still allocated");
}

}  // namespace dsc
