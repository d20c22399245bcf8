// Memory of dsc_mem_alloc(). Each rank of an allocation creates one segment, and all these ranks map all
// segments.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "control/layout.hpp"
#include "control/shared_memory.hpp"

namespace dsc {

// One allocation, as it is seen by one of its ranks.
struct Allocation {
  uint64_t id = 0;  // equal on all ranks of the allocation
  size_t bytes = 0;
  int own_rank = 0;  // index of this rank among the ranks of this host
  // The mapped segments, by local rank; null for ranks that are not part of the allocation.
  std::vector<std::shared_ptr<Mapping>> mappings;
  // Whether part of this rank's memory is no longer shared with other ranks.
  std::atomic<bool> detached{false};
  Mutex detaching;

  std::byte* base(int local_rank) const noexcept { return mappings[static_cast<size_t>(local_rank)]->data(); }
  std::byte* own_base() const noexcept { return base(own_rank); }
  // Makes a range of this rank's memory private, so that other ranks no longer see changes in it. Returns
  // when the range is private, even if another thread does the work. Throws NOMEM.
  void detach(const void* start, size_t length);
  // Returns whether the segment of `local_rank` is mapped in this process and contains [offset, offset +
  // length).
  bool holds(int local_rank, uint64_t offset, size_t length) const noexcept;
};

// A buffer in shared memory, and a reference to the allocation that keeps it mapped.
struct SharedRange {
  SharedLocation location{0, 0};
  std::shared_ptr<Allocation> allocation;
};

// The allocations of one rank. Any thread may use it.
class MemoryRegistry : public std::enable_shared_from_this<MemoryRegistry> {
 public:
  void add(std::shared_ptr<Allocation> allocation);

  // Returns an empty range unless the whole buffer is inside one allocation that is not detached.
  SharedRange find(const void* data, size_t bytes) const noexcept;
  std::shared_ptr<Allocation> get(uint64_t id) const noexcept;
  // Returns the allocation that contains an address, even if it is detached; null if there is none.
  std::shared_ptr<Allocation> holder(const void* data) const noexcept;

  // Unregisters the allocation that starts at this address. It may belong to any rank of this process.
  // Returns false if there is none.
  static bool release(void* memory);
  // Returns the allocation of any rank of this process that contains an address; null if there is none.
  static std::shared_ptr<Allocation> find_holder(const void* data) noexcept;

 private:
  std::shared_ptr<Allocation> take(const void* memory) noexcept;

  // Lets find() return immediately in programs that never allocate shared memory.
  std::atomic<bool> used_{false};
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Allocation>> allocations_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
