// Memory of full buffers, unit by unit, which have it for ever or only while they are open.
//
// Memory that comes and goes is taken from a pool, because new memory from the system or the driver costs
// more than the operations. In host memory the ranks of each host share the pool, where operations move data
// fastest, and a unit has one address for ever at which the caller sees it: a second mapping of its part of
// the pool. Operations use the pool's own addresses, by which the engine knows the memory. On a device a unit
// has an address only while it is open. What does not fit into the pool gets memory of its own.
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
  bool is_kept = true;    // units have memory for ever
  size_t pool_bytes = 0;  // from which they have it otherwise
  bool faults = false;    // an access to a closed unit ends in SIGSEGV, where the memory can do that
};

class UnitMemory {
 public:
  // Collective. Work on a device is put on the stream.
  UnitMemory(Space& space, void* stream, const FlatOffsets& full, const UnitOptions& options);

  // Returns the address of the units' addresses; null if a unit has an address only while it is open.
  std::byte* views() const noexcept { return is_kept_ || range_ ? base_ : nullptr; }
  // Returns where operations find a unit that is open.
  std::byte* buffer(size_t unit) const noexcept;
  // Units that have memory for ever are never open.
  bool is_open(size_t unit) const noexcept { return states_[unit].open; }
  // Returns whether a unit that was opened may hold anything, and not zeros.
  bool is_dirty(size_t unit) const noexcept { return states_[unit].slot || states_[unit].own; }
  // Bytes that this rank holds, the pool included, and by how much open() would add to them.
  size_t held() const noexcept { return held_; }
  size_t growth(size_t unit) const;

  // Gives a unit memory; `may_pool` is false if the caller may have written to its pages already.
  void open(size_t unit, bool may_pool);
  // Takes the memory of a unit away, or zeros it if it is kept for ever.
  void close(size_t unit);
  // Never frees the memory, because operations may still use it.
  void keep();

  // Returns what offsets of units must be multiples of.
  static size_t alignment(bool on_device, bool is_kept) noexcept;

 private:
  struct State {
    bool open = false;
    std::optional<size_t> slot;  // bytes from the start of the pool
    Memory own;                  // of a device, in place of a slot
  };

  Space& space_;
  void* const stream_;
  const std::vector<FlatOffsets::Unit> units_;
  const bool is_kept_;
  std::vector<State> states_;
  PoolSlots slots_;
  Memory memory_;                        // the pool, or all units
  std::byte* pool_ = nullptr;            // whole pages of it in the host
  std::unique_ptr<AddressRange> range_;  // in the host
  std::byte* base_ = nullptr;            // where offsets of units begin
  size_t held_ = 0;
};

}  // namespace dsc
