#include "control/memory.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace dsc {
namespace {

// The memory of one rank in one allocation.
struct Owner {
  size_t bytes;
  std::shared_ptr<MemoryRegistry> registry;
};

// The memory of all ranks of the process by its start, so that all ranks of the process can free it.
struct Owners {
  Mutex mutex;
  std::map<const void*, Owner> by_address DSC_GUARDED_BY(mutex);
};

// The table is never destroyed. Memory remains valid until the user frees it, even after the end of its
// world, so it may be freed during exit.
Owners& owners() {
  static Owners* const instance = new Owners;
  return *instance;
}

std::atomic<bool> any_window{false};  // whether this process has registered memory

// Returns the last entry that begins at an address or before it, or the end.
template <typename Map>
auto last_before(Map& entries, const void* address) {
  auto next = entries.upper_bound(address);
  return next == entries.begin() ? entries.end() : --next;
}

void expect_no_owner(const std::map<const void*, Owner>& known, const void* memory, size_t bytes) {
  const auto* const end = static_cast<const std::byte*>(memory) + bytes;
  const auto before = last_before(known, end - 1);
  if (before == known.end() || static_cast<const std::byte*>(before->first) + before->second.bytes <= memory)
    return;
  fail(DSC_ERR_INVALID_ARG,
       "memory %p with %zu bytes overlaps %zu bytes at %p, which are registered or from dsc_mem_alloc()",
       memory, bytes, before->second.bytes, before->first);
}

std::shared_ptr<MemoryRegistry> owner_of(const void* memory) {
  MutexLock lock(owners().mutex);
  const auto found = owners().by_address.find(memory);
  return found == owners().by_address.end() ? nullptr : found->second.registry;
}

}  // namespace

// Sets `detached` before it copies. Data that arrives in the shared pages after the copy is lost, so an
// operation that finishes later must fail.
void Allocation::detach(const void* start, size_t length) {
  MutexLock lock(detaching);
  detached.store(true);
  if (window) return window->detach(start, length);
  make_private(begin() + offset_of(start), length);
}

void MemoryRegistry::know(std::shared_ptr<Segments> segments) {
  MutexLock lock(mutex_);
  const uint64_t id = segments->id;
  segments_.insert_or_assign(id, std::move(segments));
}

std::shared_ptr<const Segments> MemoryRegistry::segments(uint64_t id) const noexcept {
  MutexLock lock(mutex_);
  const auto found = segments_.find(id);
  return found == segments_.end() ? nullptr : found->second;
}

void MemoryRegistry::close() noexcept {
  SegmentsById unused;  // unmapped after the lock is released
  MutexLock lock(mutex_);
  unused.swap(segments_);
}

std::shared_ptr<Allocation> MemoryRegistry::holder(const void* data) const noexcept {
  MutexLock lock(mutex_);
  const auto found = last_before(allocations_, data);
  return found != allocations_.end() && found->second->contains(data) ? found->second : nullptr;
}

void MemoryRegistry::check_unregistered(const void* memory, size_t bytes) {
  {
    MutexLock lock(owners().mutex);
    expect_no_owner(owners().by_address, memory, bytes);
  }
  Window::check(memory, bytes);
}

void MemoryRegistry::claim(void* memory, size_t bytes) {
  check_unregistered(memory, bytes);
  MutexLock lock(owners().mutex);
  expect_no_owner(owners().by_address, memory, bytes);
  owners().by_address.emplace(memory, Owner{bytes, shared_from_this()});
}

void MemoryRegistry::add(std::shared_ptr<Allocation> allocation) {
  if (allocation->window) any_window.store(true);
  const void* address = allocation->begin();
  {
    MutexLock lock(owners().mutex);
    owners().by_address.insert_or_assign(address, Owner{allocation->own_bytes(), shared_from_this()});
  }
  MutexLock lock(mutex_);
  allocations_.insert_or_assign(address, std::move(allocation));
  used_.store(true, std::memory_order_relaxed);
}

SharedRange MemoryRegistry::find(const void* data, size_t bytes) const noexcept {
  if (!used_.load(std::memory_order_relaxed)) return {};
  auto allocation = holder(data);
  if (!allocation || allocation->detached.load()) return {};
  const auto* const start = static_cast<const std::byte*>(data);
  if (bytes > static_cast<size_t>(allocation->begin() + allocation->own_bytes() - start)) return {};
  const SharedLocation location{allocation->id(), allocation->offset_of(start)};
  return {location, std::move(allocation)};
}

void MemoryRegistry::take(const void* memory) noexcept {
  std::shared_ptr<Allocation> taken;  // destroyed after the lock is released
  MutexLock lock(mutex_);
  const auto found = allocations_.find(memory);
  if (found == allocations_.end()) return;
  taken = std::move(found->second);
  allocations_.erase(found);
}

// First the entry goes, because another thread may get the same address as soon as the memory is unmapped.
bool MemoryRegistry::release(void* memory) {
  const auto registry = owner_of(memory);
  if (!registry) return false;
  {
    MutexLock lock(owners().mutex);
    if (owners().by_address.erase(memory) == 0) return false;
  }
  registry->take(memory);
  return true;
}

// First the allocation goes, so that no operation finds it when the program uses the address again.
bool MemoryRegistry::end_window(void* memory) {
  const auto registry = owner_of(memory);
  const auto allocation = registry ? registry->holder(memory) : nullptr;
  if (!allocation || !allocation->window || allocation->begin() != memory) return false;
  if (allocation->users.load() > 0)
    fail(DSC_ERR_BUSY,
         "an operation still uses the memory, which stays registered; wait for the operation first");
  if (!release(memory)) return false;
  if (!allocation->window->is_mapped(allocation->detached.load()))
    fail(DSC_ERR_INVALID_ARG,
         "the memory at %p was freed, unmapped or moved while it was registered; end a registration before "
         "that",
         memory);
  allocation->window->close();
  return true;
}

std::shared_ptr<Allocation> MemoryRegistry::find_holder(const void* data) noexcept {
  std::shared_ptr<MemoryRegistry> registry;
  {
    MutexLock lock(owners().mutex);
    const auto found = last_before(owners().by_address, data);
    if (found == owners().by_address.end()) return nullptr;
    registry = found->second.registry;
  }
  return registry->holder(data);
}

WindowUse::WindowUse(const void* send, const void* recv) noexcept {
  if (!any_window.load(std::memory_order_relaxed)) return;
  for (const void* buffer : {send, recv}) {
    auto allocation = buffer ? MemoryRegistry::find_holder(buffer) : nullptr;
    if (!allocation || !allocation->window || used_[0] == allocation) continue;
    allocation->users.fetch_add(1);
    used_[used_[0] ? 1 : 0] = std::move(allocation);
  }
}

void WindowUse::end() noexcept {
  for (auto& allocation : used_)
    if (const auto ended = std::exchange(allocation, nullptr)) ended->users.fetch_sub(1);
}

}  // namespace dsc
