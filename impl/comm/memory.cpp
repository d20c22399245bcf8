#include "comm/memory.hpp"

#include <cstddef>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/mutex.hpp"
#include "control/memory.hpp"

namespace dsc {
namespace {

struct KeptMemory {
  struct Block {
    size_t bytes;
    std::shared_ptr<void> owner;
  };

  Mutex mutex;
  std::map<void*, Block> blocks DSC_GUARDED_BY(mutex);
  std::multimap<void*, std::shared_ptr<void>> retained DSC_GUARDED_BY(mutex);  // of engines of all kinds
};

// The registry is never destroyed, because calls may come until the process ends.
KeptMemory& kept() {
  static KeptMemory* const instance = new KeptMemory;
  return *instance;
}

bool release_kept(void* memory) {
  std::shared_ptr<void> released;  // destroyed after the lock is given back
  const MutexLock lock(kept().mutex);
  const auto found = kept().blocks.find(memory);
  if (found == kept().blocks.end()) return false;
  released = std::move(found->second.owner);
  kept().blocks.erase(found);
  return true;
}

bool release_retained(void* memory) {
  std::shared_ptr<void> released;  // as above
  const MutexLock lock(kept().mutex);
  const auto found = kept().retained.find(memory);
  if (found == kept().retained.end()) return false;
  released = std::move(found->second);
  kept().retained.erase(found);
  return true;
}

struct Retained {
  void* start = nullptr;
  std::shared_ptr<void> owner;
};

Retained find_kept(const void* address) {
  const auto* const wanted = static_cast<const std::byte*>(address);
  const MutexLock lock(kept().mutex);
  auto next = kept().blocks.upper_bound(const_cast<void*>(address));
  if (next == kept().blocks.begin()) return {};
  const auto& [start, block] = *--next;
  if (wanted >= static_cast<const std::byte*>(start) + block.bytes) return {};
  return {start, block.owner};
}

Retained find_any(const void* address) {
  if (auto allocation = MemoryRegistry::find_holder(address)) {
    void* const start = allocation->own_base();
    return {start, std::move(allocation)};
  }
  return find_kept(address);
}

}  // namespace

void keep_memory(void* memory, size_t bytes, std::shared_ptr<void> owner) {
  const MutexLock lock(kept().mutex);
  kept().blocks.emplace(memory, KeptMemory::Block{bytes, std::move(owner)});
}

void release_memory(void* memory) {
  if (!MemoryRegistry::release(memory) && !release_kept(memory))
    fail(DSC_ERR_INVALID_ARG, "memory is not the start of memory of dsc_mem_alloc that is still allocated");
}

void* retain_memory(const void* address) {
  Retained found = find_any(address);
  if (!found.owner)
    fail(DSC_ERR_INVALID_ARG, "address is not in memory that the library has allocated for a communicator");
  const MutexLock lock(kept().mutex);
  kept().retained.emplace(found.start, std::move(found.owner));
  return found.start;
}

void drop_memory(void* memory) {
  if (!release_retained(memory)) release_memory(memory);
}

}  // namespace dsc
