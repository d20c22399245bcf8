#include "sharded/unit_memory.hpp"

#include <utility>

#include "base/pages.hpp"

namespace dsc {
namespace {

constexpr size_t kDeviceAlignment = 256;  // the alignment of allocations by the driver

}  // namespace

UnitMemory::UnitMemory(Space& space, void* stream, const FlatOffsets& full, const UnitOptions& options)
    : space_(space),
      stream_(stream),
      units_(full.units),
      is_kept_(options.is_kept),
      states_(full.units.size()) {
  if (is_kept_) {
    memory_ = space.allocate(full.bytes);
    base_ = memory_.get();
    held_ = full.bytes;
    return;
  }
  const bool is_mapped = !space.in_stream_order();
  const size_t page = is_mapped ? page_bytes() : 1;
  slots_ = PoolSlots(options.pool_bytes / page * page);
  memory_ = space.allocate(slots_.bytes() + page - 1);
  pool_ = memory_.get() + (page - reinterpret_cast<uintptr_t>(memory_.get()) % page) % page;
  if (is_mapped) range_ = std::make_unique<AddressRange>(full.bytes, options.faults);
  base_ = is_mapped ? range_->begin() : pool_;
  held_ = slots_.bytes();
}

std::byte* UnitMemory::buffer(size_t unit) const noexcept {
  const State& state = states_[unit];
  if (state.own) return state.own.get();
  return state.slot ? pool_ + *state.slot : base_ + units_[unit].offset;
}

size_t UnitMemory::growth(size_t unit) const {
  const size_t bytes = units_[unit].bytes;
  return is_kept_ || states_[unit].open || slots_.find(bytes) ? 0 : bytes;
}

void UnitMemory::open(size_t unit, bool may_pool) {
  State& state = states_[unit];
  const auto [offset, bytes] = units_[unit];
  if (is_kept_ || state.open) return;
  if (bytes > 0) {
    const auto slot = may_pool ? slots_.find(bytes) : std::nullopt;
    if (slot && (!range_ || range_->alias(offset, pool_ + *slot, bytes))) {
      slots_.take(*slot, bytes);
      state.slot = slot;
    } else {
      if (range_)
        range_->provide(offset, bytes);
      else
        state.own = space_.take(bytes, stream_);
      held_ += bytes;
    }
  }
  state.open = true;
}

// Device memory can be released immediately, because its next use is later on the same stream.
void UnitMemory::close(size_t unit) {
  State& state = states_[unit];
  const auto [offset, bytes] = units_[unit];
  if (is_kept_) return space_.zero(base_ + offset, bytes, stream_);
  if (range_ && bytes > 0) range_->clear(offset, bytes);
  if (state.slot) slots_.release(*state.slot);
  if (state.open && !state.slot) held_ -= bytes;
  state = {};
}

void UnitMemory::keep() noexcept {
  for (State& state : states_) dsc::keep(std::move(state.own));
  dsc::keep(std::move(memory_));
  if (range_) range_->keep();
}

size_t UnitMemory::alignment(bool on_device, bool is_kept) noexcept {
  if (on_device) return kDeviceAlignment;
  return is_kept ? 1 : page_bytes();
}

}  // namespace dsc
