#include "sharded/unit_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "comm/memory.hpp"

namespace dsc {
namespace {

constexpr size_t kLeastBytes = 128;  // also memory for no elements has an address

size_t page_bytes() noexcept {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::byte* reserve(size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (data == MAP_FAILED) fail(DSC_ERR_NOMEM, "no addresses for %zu bytes of flat buffers", bytes);
  return static_cast<std::byte*>(data);
}

// Replaces what is mapped by pages of zeros that take no memory until they are written.
void map_zeros(std::byte* at, size_t bytes, bool faults) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (mmap(at, bytes, faults ? PROT_NONE : PROT_READ | PROT_WRITE, kFlags, -1, 0) == MAP_FAILED)
    fail_errno(errno, "mmap of %zu bytes of a flat buffer", bytes);
}

}  // namespace

UnitMemory UnitMemory::kept(Comm& group, const FlatOffsets& places) {
  UnitMemory memory(places.units, true);
  memory.shared_ = static_cast<std::byte*>(group.allocate_memory(std::max(places.bytes, kLeastBytes)));
  memory.views_ = memory.shared_;
  memory.held_ = places.bytes;
  return memory;
}

UnitMemory UnitMemory::pooled(Comm& group, const FlatOffsets& places, size_t pool_bytes) {
  UnitMemory memory(places.units, false);
  const size_t page = page_bytes();
  memory.pool_bytes_ = pool_bytes / page * page;
  memory.shared_ = static_cast<std::byte*>(group.allocate_memory(memory.pool_bytes_ + page));
  const auto address = reinterpret_cast<uintptr_t>(memory.shared_);
  memory.pool_ = memory.shared_ + (page - address % page) % page;
  memory.view_bytes_ = std::max(places.bytes, page);
  memory.views_ = reserve(memory.view_bytes_);
  memory.held_ = memory.pool_bytes_;
  return memory;
}

UnitMemory::UnitMemory(UnitMemory&& other) noexcept
    : units_(std::move(other.units_)),
      states_(std::move(other.states_)),
      used_(std::move(other.used_)),
      is_kept_(other.is_kept_),
      shared_(std::exchange(other.shared_, nullptr)),
      pool_(other.pool_),
      views_(std::exchange(other.views_, nullptr)),
      view_bytes_(other.view_bytes_),
      pool_bytes_(other.pool_bytes_),
      held_(other.held_) {}

UnitMemory::~UnitMemory() {
  if (views_ && !is_kept_) munmap(views_, view_bytes_);
  if (shared_) release_memory(shared_);
}

std::byte* UnitMemory::buffer(size_t unit) const noexcept {
  return states_[unit].pooled ? pool_ + states_[unit].slot : views_ + units_[unit].offset;
}

// Finds the first free part of the pool that is large enough.
bool UnitMemory::find_slot(size_t bytes, size_t& slot) const {
  slot = 0;
  for (const auto& [start, length] : used_) {
    if (start - slot >= bytes) return true;
    slot = start + length;
  }
  return pool_bytes_ - slot >= bytes;
}

size_t UnitMemory::growth(size_t unit) const {
  size_t slot = 0;
  return is_kept_ || states_[unit].open || find_slot(units_[unit].bytes, slot) ? 0 : units_[unit].bytes;
}

// With an old size of 0, mremap maps the same pages of shared memory a second time.
bool UnitMemory::alias(size_t unit) const noexcept {
  const auto [offset, bytes] = units_[unit];
  constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED;
  return mremap(pool_ + states_[unit].slot, 0, bytes, kFlags, views_ + offset) != MAP_FAILED;
}

void UnitMemory::open(size_t unit, bool may_pool) {
  State& state = states_[unit];
  const auto [offset, bytes] = units_[unit];
  if (is_kept_ || state.open) return;
  if (bytes > 0) {
    state.pooled = may_pool && find_slot(bytes, state.slot) && alias(unit);
    if (state.pooled) {
      used_.emplace(state.slot, bytes);
    } else if (mprotect(views_ + offset, bytes, PROT_READ | PROT_WRITE) != 0) {
      if (errno == ENOMEM) fail(DSC_ERR_NOMEM, "no memory for %zu bytes of a unit", bytes);
      fail_errno(errno, "mprotect of %zu bytes", bytes);
    }
    if (!state.pooled) held_ += bytes;
  }
  state.open = true;
}

void UnitMemory::close(size_t unit, bool faults) {
  State& state = states_[unit];
  const auto [offset, bytes] = units_[unit];
  if (is_kept_) {
    std::memset(views_ + offset, 0, bytes);
    return;
  }
  if (bytes > 0) map_zeros(views_ + offset, bytes, faults);
  if (state.pooled) used_.erase(state.slot);
  if (state.open && !state.pooled) held_ -= bytes;
  state = {};
}

void UnitMemory::close_all(bool faults) {
  for (size_t unit = 0; unit < units_.size(); ++unit) close(unit, faults);
}

size_t UnitMemory::alignment(bool is_kept) noexcept { return is_kept ? 1 : page_bytes(); }

}  // namespace dsc
