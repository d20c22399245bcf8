#include "comm/memory.hpp"

#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/mutex.hpp"
#include "control/memory.hpp"

namespace dsc {
namespace {

struct KeptBlock {
  size_t bytes;
  std::shared_ptr<void> owner;
};

struct KeptMemory {
  Mutex mutex;
  std::map<void*, KeptBlock> blocks DSC_GUARDED_BY(mutex);
  // Memory that retain_memory() keeps alive, with one entry per call of it.
  std::multimap<void*, KeptBlock> retained DSC_GUARDED_BY(mutex);
  std::set<void*> callers DSC_GUARDED_BY(mutex);  // addresses that a caller may free
};

// The registry is never destroyed, because calls may arrive until the process ends.
KeptMemory& kept() {
  static KeptMemory* const instance = new KeptMemory;
  return *instance;
}

bool release_kept(void* memory) {
  std::shared_ptr<void> released;  // destroyed after the lock is released
  const MutexLock lock(kept().mutex);
  const auto found = kept().blocks.find(memory);
  if (found == kept().blocks.end()) return false;
  released = std::move(found->second.owner);
  kept().blocks.erase(found);
  return true;
}

bool release_retained(void* memory) {
  std::shared_ptr<void> released;  // destroyed after the lock is released
  const MutexLock lock(kept().mutex);
  const auto found = kept().retained.find(memory);
  if (found == kept().retained.end()) return false;
  released = std::move(found->second.owner);
  kept().retained.erase(found);
  return true;
}

// Returns true if a caller may free this memory. Returns true only once per address.
bool take_from_caller(void* memory) {
  const MutexLock lock(kept().mutex);
  return kept().callers.erase(memory) > 0;
}

[[noreturn]] void fail_not_allocated() {
  fail(DSC_ERR_INVALID_ARG,
       "memory is not an address that dsc_mem_alloc() or dsc_mem_retain() returned, or it was already freed");
}

// Returns the block that contains an address, or an empty one.
template <typename Blocks>
std::pair<void*, KeptBlock> find_in(const Blocks& blocks, const void* address) {
  auto next = blocks.upper_bound(const_cast<void*>(address));
  if (next == blocks.begin()) return {};
  const auto& [start, block] = *--next;
  const bool contains =
      static_cast<const std::byte*>(address) < static_cast<const std::byte*>(start) + block.bytes;
  return contains ? std::pair<void*, KeptBlock>(start, block) : std::pair<void*, KeptBlock>();
}

std::pair<void*, KeptBlock> find_any(const void* address) {
  if (auto allocation = MemoryRegistry::find_holder(address)) {
    if (allocation->window)
      fail(DSC_ERR_INVALID_ARG,
           "address is in memory that the program has registered; expected the library's");
    void* const start = allocation->begin();
    const size_t bytes = allocation->own_bytes();
    return {start, {bytes, std::move(allocation)}};
  }
  const MutexLock lock(kept().mutex);
  const auto found = find_in(kept().blocks, address);
  return found.first ? found : find_in(kept().retained, address);
}

}  // namespace

void keep_memory(void* memory, size_t bytes, std::shared_ptr<void> owner) {
  const MutexLock lock(kept().mutex);
  kept().blocks.emplace(memory, KeptBlock{bytes, std::move(owner)});
}

void release_memory(void* memory) {
  if (!MemoryRegistry::release(memory) && !release_kept(memory)) fail_not_allocated();
}

void unregister_memory(void* memory) {
  if (!MemoryRegistry::end_window(memory))
    fail(DSC_ERR_INVALID_ARG,
         "memory is not the start of memory that dsc_mem_register() registered, or it was already "
         "unregistered");
}

void* retain_memory(const void* address) {
  auto found = find_any(address);
  if (!found.first)
    fail(DSC_ERR_INVALID_ARG, "address is not in memory that the library has allocated for a communicator");
  const MutexLock lock(kept().mutex);
  kept().retained.insert(found);
  return found.first;
}

void* give_memory(void* memory) {
  const MutexLock lock(kept().mutex);
  kept().callers.insert(memory);
  return memory;
}

void drop_memory(void* memory) {
  if (release_retained(memory)) return;
  if (!take_from_caller(memory)) fail_not_allocated();
  release_memory(memory);
}

}  // namespace dsc
