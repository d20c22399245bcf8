#include "control/memory.hpp"

#include <algorithm>
#include <map>

namespace dsc {
namespace {

// Maps the start of each allocation to the registry of its rank, so that all ranks of the process can free
// it.
struct Owners {
  Mutex mutex;
  std::map<const void*, std::shared_ptr<MemoryRegistry>> by_address DSC_GUARDED_BY(mutex);
};

// The table is never destroyed. Memory remains valid until the user frees it, even after the end of its
// world, so it may be freed during exit.
Owners& owners() {
  static Owners* const instance = new Owners;
  return *instance;
}

}  // namespace

bool Allocation::holds(int local_rank, uint64_t offset, size_t length) const noexcept {
  const auto index = static_cast<size_t>(local_rank);
  return index < mappings.size() && mappings[index] && offset <= bytes && length <= bytes - offset;
}

// Sets `detached` before it copies. Data that arrives in the shared pages after the copy is lost, so an
// operation that finishes later must fail.
void Allocation::detach(const void* start, size_t length) {
  MutexLock lock(detaching);
  detached.store(true);
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(start) - own_base());
  mappings[static_cast<size_t>(own_rank)]->detach(offset, length);
}

std::shared_ptr<Allocation> MemoryRegistry::holder(const void* data) const noexcept {
  const auto* address = static_cast<const std::byte*>(data);
  MutexLock lock(mutex_);
  const auto found = std::find_if(allocations_.begin(), allocations_.end(), [address](const auto& a) {
    return address >= a->own_base() && address < a->own_base() + a->bytes;
  });
  return found == allocations_.end() ? nullptr : *found;
}

void MemoryRegistry::add(std::shared_ptr<Allocation> allocation) {
  const void* address = allocation->own_base();
  {
    MutexLock lock(owners().mutex);
    owners().by_address[address] = shared_from_this();
  }
  MutexLock lock(mutex_);
  allocations_.push_back(std::move(allocation));
  used_.store(true, std::memory_order_relaxed);
}

SharedRange MemoryRegistry::find(const void* data, size_t bytes) const noexcept {
  if (!used_.load(std::memory_order_relaxed)) return {};
  const auto* start = static_cast<const std::byte*>(data);
  MutexLock lock(mutex_);
  for (const auto& allocation : allocations_) {
    const std::byte* base = allocation->own_base();
    if (start < base || start >= base + allocation->bytes) continue;
    const auto offset = static_cast<uint64_t>(start - base);
    if (bytes > allocation->bytes - offset || allocation->detached.load()) return {};
    return {{allocation->id, offset}, allocation};
  }
  return {};
}

std::shared_ptr<Allocation> MemoryRegistry::get(uint64_t id) const noexcept {
  MutexLock lock(mutex_);
  const auto found =
      std::find_if(allocations_.begin(), allocations_.end(), [id](const auto& a) { return a->id == id; });
  return found == allocations_.end() ? nullptr : *found;
}

std::shared_ptr<Allocation> MemoryRegistry::take(const void* memory) noexcept {
  MutexLock lock(mutex_);
  const auto found = std::find_if(allocations_.begin(), allocations_.end(),
                                  [memory](const auto& a) { return a->own_base() == memory; });
  if (found == allocations_.end()) return nullptr;
  std::shared_ptr<Allocation> allocation = std::move(*found);
  allocations_.erase(found);
  return allocation;
}

bool MemoryRegistry::release(void* memory) {
  std::shared_ptr<MemoryRegistry> registry;
  {
    MutexLock lock(owners().mutex);
    const auto found = owners().by_address.find(memory);
    if (found == owners().by_address.end()) return false;
    registry = std::move(found->second);
    owners().by_address.erase(found);
  }
  registry->take(memory);
  return true;
}

std::shared_ptr<Allocation> MemoryRegistry::find_holder(const void* data) noexcept {
  std::shared_ptr<MemoryRegistry> registry;
  {
    MutexLock lock(owners().mutex);
    auto next = owners().by_address.upper_bound(data);
    if (next == owners().by_address.begin()) return nullptr;
    registry = (--next)->second;
  }
  return registry->holder(data);
}

}  // namespace dsc
