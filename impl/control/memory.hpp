// Memory of dsc_mem_alloc: one segment per rank and allocation, mapped by all ranks that allocated it
// together.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "control/layout.hpp"
#include "control/shared_memory.hpp"

namespace dsc {

struct Allocation {
  uint64_t id = 0;  // equal on all ranks of the allocation
  size_t bytes = 0;
  int own_rank = 0;                                // in the world
  std::vector<std::shared_ptr<Mapping>> mappings;  // by rank in the world; null where that rank has no part
  std::atomic<bool> detached{false};  // part of this rank's memory is no longer reached by others
  Mutex detaching;

  std::byte* base(int local_rank) const noexcept { return mappings[static_cast<size_t>(local_rank)]->data(); }
  std::byte* own_base() const noexcept { return base(own_rank); }
  // Makes a range of this rank's memory private; nobody else's view of it counts any more. Returns when it is
  // done, also when another thread is at it. Throws NOMEM.
  void detach(const void* start, size_t length);
  // Whether the segment of that rank is here and holds [offset, offset + length).
  bool holds(int local_rank, uint64_t offset, size_t length) const noexcept;
};

// A buffer in shared memory, and what keeps it mapped.
struct SharedRange {
  SharedPlace place{0, 0};
  std::shared_ptr<Allocation> allocation;
};

// The allocations of one rank.
class MemoryRegistry : public std::enable_shared_from_this<MemoryRegistry> {
 public:
  void add(std::shared_ptr<Allocation> allocation);

  // Nothing when the range is not wholly inside one allocation.
  SharedRange find(const void* data, size_t bytes) const noexcept;
  std::shared_ptr<Allocation> get(uint64_t id) const noexcept;
  // The allocation that an address lies in, also when it is detached; null if there is none.
  std::shared_ptr<Allocation> holder(const void* data) const noexcept;

  // Forgets the allocation that starts here, of whichever rank of this process; false if there is none.
  static bool release(void* memory);

 private:
  std::shared_ptr<Allocation> take(const void* memory) noexcept;

  // So that a program that never allocates here does not pay for looking.
  std::atomic<bool> used_{false};
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Allocation>> allocations_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
