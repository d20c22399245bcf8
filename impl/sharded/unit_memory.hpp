// Memory of full buffers, unit by unit. A unit has memory permanently or only while it is open.
//
// Memory of units that open and close is taken from a pool, because new memory from the system or the driver
// costs more than the operations. In host memory the ranks of each host share the pool, in which operations
// move data fastest. There a unit has one permanent address for the caller: a second mapping of its part of
// the pool. Operations use the pool's own addresses, by which the engine knows the memory. On a device a unit
// has an address only while it is open. A unit that does not fit into the pool gets separate memory.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "memory/space.hpp"
#include "sharded/address_range.hpp"
#include "sharded/flat_offsets.hpp"
#include "sharded/pool_slots.hpp"

namespace dsc {

struct UnitOptions {
  bool is_kept = true;    // units have permanent memory
  size_t pool_bytes = 0;  // size of the pool for the memory of units otherwise
  bool faults = false;    // an access to a closed unit ends in SIGSEGV, if the memory supports that
};

class UnitMemory {
 public:
  // Collective. Work on a device is put on the stream.
  UnitMemory(Space& space, void* stream, const FlatOffsets& full, const UnitOptions& options);

  // Returns the start of the units' addresses; null if a unit has an address only while it is open.
  std::byte* views() const noexcept { return is_kept_ || range_ ? base_ : nullptr; }
  // Returns the memory of an open unit, as operations use it.
  std::byte* buffer(size_t unit) const noexcept;
  // Units with permanent memory are never open.
  bool is_open(size_t unit) const noexcept { return states_[unit].open; }
  // Returns whether a unit that was opened may hold any values rather than zeros.
  bool is_dirty(size_t unit) const noexcept { return states_[unit].slot || states_[unit].own; }
  // Return the bytes that this rank holds, including the pool, and by how much open() would increase them.
  size_t held() const noexcept { return held_; }
  size_t growth(size_t unit) const;

  // Gives a unit memory; `may_pool` is false if the caller may have written to its pages already.
  void open(size_t unit, bool may_pool);
  // Removes the memory of a unit, or zeros it if it is permanent.
  void close(size_t unit);
  // Never frees the memory, because operations may still use it.
  void keep() noexcept;

  // Returns the alignment of the offsets of units.
  static size_t alignment(bool on_device, bool is_kept) noexcept;

 private:
  struct State {
    bool open = false;
    std::optional<size_t> slot;  // bytes from the start of the pool
    Memory own;                  // on a device, instead of a slot
  };

  Space& space_;
  void* const stream_;
  const std::vector<FlatOffsets::Unit> units_;
  const bool is_kept_;
  std::vector<State> states_;
  PoolSlots slots_;
  Memory memory_;                        // the pool, or all units
  std::byte* pool_ = nullptr;            // whole pages of the pool, on the host
  std::unique_ptr<AddressRange> range_;  // on the host
  std::byte* base_ = nullptr;            // the start of the offsets of units
  size_t held_ = 0;
};

}  // namespace dsc
