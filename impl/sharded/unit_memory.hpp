// Host memory of full buffers, unit by unit. A unit has one address for ever, at which the caller sees it,
// and may have memory only at times.
//
// Memory that comes and goes is taken from a pool that the ranks of each host share, because operations move
// data fastest there and because new pages from the system cost more than the operations. A unit's address is
// then a second mapping of its part of the pool; operations use the pool's own addresses, by which the engine
// knows the memory. What does not fit into the pool gets pages from the system.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/comm.hpp"
#include "sharded/flat_offsets.hpp"
#include "sharded/pool_slots.hpp"

namespace dsc {

class UnitMemory {
 public:
  // Collective: all units have memory until the end.
  static UnitMemory kept(Comm& group, const FlatOffsets& places);
  // Collective: a pool of so many bytes, and no unit has memory. With `faults` any access to a unit that has
  // none ends in SIGSEGV, so that the use of an address that is no longer valid is found where it happens.
  static UnitMemory pooled(Comm& group, const FlatOffsets& places, size_t pool_bytes, bool faults);

  UnitMemory(UnitMemory&& other) noexcept;
  UnitMemory& operator=(UnitMemory&&) = delete;
  ~UnitMemory();

  // Returns the address of all units' addresses.
  std::byte* views() const noexcept { return views_; }
  // Returns where operations find a unit that has memory.
  std::byte* buffer(size_t unit) const noexcept;
  bool is_pooled(size_t unit) const noexcept { return states_[unit].pooled; }

  // Bytes that this rank holds, the pool included, and by how much open() would add to them.
  size_t held() const noexcept { return held_; }
  size_t growth(size_t unit) const;

  // Gives a unit memory, with any contents; `may_pool` is false if its pages may have been written already.
  void open(size_t unit, bool may_pool);
  // Takes it away. Then its address holds zeros and takes writes, which get pages from the system, or faults.
  void close(size_t unit);

  // Never frees the memory, because operations may still use it.
  void keep() noexcept { views_ = shared_ = nullptr; }

  // Returns what offsets of units must be multiples of.
  static size_t alignment(bool is_kept) noexcept;

 private:
  struct State {
    bool open = false;
    bool pooled = false;
    size_t slot = 0;  // bytes from the start of the pool
  };

  UnitMemory(std::vector<FlatOffsets::Unit> units, bool is_kept)
      : units_(std::move(units)), states_(units_.size()), is_kept_(is_kept) {}
  bool alias(size_t unit) const noexcept;

  std::vector<FlatOffsets::Unit> units_;
  std::vector<State> states_;
  PoolSlots slots_;
  bool is_kept_;
  bool faults_ = false;
  std::byte* shared_ = nullptr;  // from the group: the pool, or all units
  std::byte* pool_ = nullptr;    // whole pages of it
  std::byte* views_ = nullptr;
  size_t view_bytes_ = 0;
  size_t held_ = 0;
};

}  // namespace dsc
