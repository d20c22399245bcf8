// The memory of full buffers, unit by unit. A unit has memory either permanently or only while it is open.
//
// Units that open and close take memory from a pool, because new memory from the system or the driver costs
// more than the operations. A unit that does not fit into the pool gets separate memory.
//
// In host memory, the ranks of each host share the pool, because operations move data fastest in shared
// memory. A unit has one permanent address for the caller, which is a second mapping of its part of the pool.
// Operations use addresses in the pool, because the engine knows only those. On a device, a unit has an
// address only while it is open.
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
  size_t pool_bytes = 0;  // size of the pool, if units have no permanent memory
  bool faults = false;    // if possible, an access to a closed unit causes SIGSEGV
};

class UnitMemory {
 public:
  // The constructor is collective. On a device, all work is put on `stream`.
  UnitMemory(Space& space, void* stream, const FlatOffsets& full, const UnitOptions& options);

  // Returns the address that unit offsets refer to; null if a unit has an address only while it is open.
  std::byte* views() const noexcept { return is_kept_ || range_ ? base_ : nullptr; }
  // Returns the memory of an open unit, at the address for operations.
  std::byte* buffer(size_t unit) const noexcept;
  // Returns whether a unit is open. A unit with permanent memory is never open.
  bool is_open(size_t unit) const noexcept { return states_[unit].open; }
  // Returns true if an open unit may contain any values, and false if it initially contained zeros.
  bool is_dirty(size_t unit) const noexcept { return states_[unit].slot || states_[unit].own; }
  // held() returns the number of bytes that this rank holds, including the pool. growth() returns by how much
  // open() would increase that number.
  size_t held() const noexcept { return held_; }
  size_t growth(size_t unit) const;

  // Gives a unit memory. `may_pool` must be false if the caller may already have written to the unit's pages.
  void open(size_t unit, bool may_pool);
  // Removes the memory of a unit. Permanent memory is set to zero instead.
  void close(size_t unit);
  // Leaks the memory on purpose, because operations may still use it.
  void keep() noexcept;

  // Returns the alignment for the offsets of units.
  static size_t alignment(bool on_device, bool is_kept) noexcept;

 private:
  struct State {
    bool open = false;
    std::optional<size_t> slot;  // offset from the start of the pool, in bytes
    Memory own;                  // separate memory on a device, if the unit has no slot
  };

  Space& space_;
  void* const stream_;
  const std::vector<FlatOffsets::Unit> units_;
  const bool is_kept_;
  std::vector<State> states_;
  PoolSlots slots_;
  Memory memory_;                        // the pool, or the permanent memory of all units
  std::byte* pool_ = nullptr;            // start of the pool, on the host aligned to a page
  std::unique_ptr<AddressRange> range_;  // only in host memory
  std::byte* base_ = nullptr;            // the address that unit offsets refer to
  size_t held_ = 0;
};

}  // namespace dsc
