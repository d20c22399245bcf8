// Memory of dsc_mem_alloc(), and memory of the program that dsc_mem_register() made reachable. Each rank of
// an allocation creates one segment, and all these ranks map all segments.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.hpp"
#include "control/layout.hpp"
#include "control/segments.hpp"
#include "control/window.hpp"

namespace dsc {

// This rank's memory in one allocation.
struct Allocation {
  explicit Allocation(std::shared_ptr<Segments> all) noexcept : segments(std::move(all)) {}
  ~Allocation() { segments->leave(); }

  const std::shared_ptr<Segments> segments;  // of all ranks of the allocation
  // Whether part of this rank's memory is no longer shared with other ranks.
  std::atomic<bool> detached{false};
  Mutex detaching;
  std::optional<Window> window;  // this rank's memory, if the program has allocated it
  std::atomic<int> users{0};     // operations that use it, see WindowUse

  uint64_t id() const noexcept { return segments->id; }
  // The start of this rank's segment.
  std::byte* own_base() const noexcept { return segments->own_base(); }
  // This rank's memory, as the program knows it.
  std::byte* begin() const noexcept { return window ? window->begin() : own_base(); }
  size_t own_bytes() const noexcept { return window ? window->bytes() : segments->bytes; }
  bool contains(const void* address) const noexcept {
    return address >= begin() && address < begin() + own_bytes();
  }
  // Returns where in the segment an address of this rank's memory is.
  size_t offset_of(const void* address) const noexcept {
    return window ? window->offset_of(address)
                  : static_cast<size_t>(static_cast<const std::byte*>(address) - begin());
  }
  // Returns the address in this rank's memory that has an offset in the segment.
  std::byte* address_of(uint64_t offset) const noexcept { return begin() + (offset - offset_of(begin())); }
  // These functions copy what a buffer in this rank's memory has in private pages to the segment, and back
  // from there. They do nothing for memory of dsc_mem_alloc(), all of which is shared.
  void show_ends(const void* buffer, size_t length) const noexcept {
    if (window) window->show_ends(buffer, length);
  }
  void take_ends(void* buffer, size_t length) const noexcept {
    if (window) window->take_ends(buffer, length);
  }
  // Makes a range of this rank's memory private, so that other ranks no longer see changes in it. Returns
  // when the range is private, even if another thread does the work. Throws NOMEM.
  void detach(const void* start, size_t length);
};

// A buffer in shared memory, and a reference to the allocation that keeps it mapped.
struct SharedRange {
  SharedLocation location{0, 0};
  std::shared_ptr<Allocation> allocation;

  // The start of the buffer in this rank's segment.
  std::byte* address() const noexcept { return allocation->own_base() + location.offset; }
};

using SegmentsById = std::map<uint64_t, std::shared_ptr<Segments>>;

// The allocations of one rank. Any thread may use it.
class MemoryRegistry : public std::enable_shared_from_this<MemoryRegistry> {
 public:
  // Makes the segments of an allocation known. Call it on every rank before any rank may use the allocation
  // in operations.
  void know(std::shared_ptr<Segments> segments);
  void add(std::shared_ptr<Allocation> allocation);

  // Returns an empty range unless the whole buffer is inside one allocation that is not detached.
  SharedRange find(const void* data, size_t bytes) const noexcept;
  // Returns the segments of the allocation with this id, also if this rank has freed its own part; null if
  // this rank has not mapped them.
  std::shared_ptr<const Segments> segments(uint64_t id) const noexcept;
  // Removes the segments that no rank needs any more. They are unmapped when the result is destroyed.
  // `has_ended(local_rank)` tells whether the process of a rank has ended.
  template <typename HasEnded>
  SegmentsById take_unused(const HasEnded& has_ended) noexcept {
    SegmentsById unused;
    const MutexLock lock(mutex_);
    for (auto next = segments_.begin(); next != segments_.end();) {
      const auto entry = next++;
      if (entry->second->all_have_left(has_ended)) unused.insert(segments_.extract(entry));
    }
    return unused;
  }
  // Ends the use of all segments.
  void close() noexcept;
  // Returns the allocation that contains an address, even if it is detached; null if there is none.
  std::shared_ptr<Allocation> holder(const void* data) const noexcept;

  // Throws INVALID_ARG if memory of the program cannot be registered, or a part of it is registered already.
  static void check_unregistered(const void* memory, size_t bytes);
  // Does the same, and reserves the memory, so that no other rank of this process registers a part of it.
  // release() ends that.
  void claim(void* memory, size_t bytes);

  // Removes the allocation that starts at this address. It may belong to any rank of this process. Returns
  // false if there is none.
  static bool release(void* memory);
  // Removes the allocation of the window that starts at this address, and makes the memory private. Returns
  // false if there is none. Throws BUSY, and nothing has changed, while a queued operation uses it. Throws
  // INVALID_ARG if the program has unmapped the memory.
  static bool end_window(void* memory);
  // Returns the allocation of any rank of this process that contains an address; null if there is none.
  static std::shared_ptr<Allocation> find_holder(const void* data) noexcept;

 private:
  void take(const void* memory) noexcept;

  // Lets find() return immediately in programs that never allocate shared memory.
  std::atomic<bool> used_{false};
  mutable Mutex mutex_;
  // By the starts of this rank's memory.
  std::map<const void*, std::shared_ptr<Allocation>> allocations_ DSC_GUARDED_BY(mutex_);
  SegmentsById segments_ DSC_GUARDED_BY(mutex_);
};

// While it exists, registered memory with these buffers cannot be unregistered. Costs nothing in programs
// that never register memory. Any thread.
class WindowUse {
 public:
  WindowUse(const void* send, const void* recv) noexcept;
  ~WindowUse() { end(); }
  WindowUse(const WindowUse&) = delete;
  WindowUse& operator=(const WindowUse&) = delete;

  void end() noexcept;

 private:
  std::array<std::shared_ptr<Allocation>, 2> used_;
};

}  // namespace dsc
