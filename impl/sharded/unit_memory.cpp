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

UnitMemory UnitMemory::pooled(Comm& group, const FlatOffsets& places, size_t pool_bytes, bool faults) {
  UnitMemory memory(places.units, false);
  const size_t page = page_bytes();
  memory.slots_ = PoolSlots(pool_bytes / page * page);
  memory.faults_ = faults;
  memory.shared_ = static_cast<std::byte*>(group.allocate_memory(memory.slots_.bytes() + page));
  const auto address = reinterpret_cast<uintptr_t>(memory.shared_);
  memory.pool_ = memory.shared_ + (page - address % page) % page;
  memory.view_bytes_ = std::max(places.bytes, page);
  memory.views_ = reserve(memory.view_bytes_);
  memory.held_ = memory.slots_.bytes();
  if (faults) map_zeros(memory.views_, memory.view_bytes_, true);
  return memory;
}

UnitMemory::UnitMemory(UnitMemory&& other) noexcept
    : units_(std::move(other.units_)),
      states_(std::move(other.states_)),
      slots_(std::move(other.slots_)),
      is_kept_(other.is_kept_),
      faults_(other.faults_),
      shared_(std::exchange(other.shared_, nullptr)),
      pool_(other.pool_),
      views_(std::exchange(other.views_, nullptr)),
      view_bytes_(other.view_bytes_),
      held_(other.held_) {}

UnitMemory::~UnitMemory() {
  if (views_ && !is_kept_) munmap(views_, view_bytes_);
  if (shared_) release_memory(shared_);
}

std::byte* UnitMemory::buffer(size_t unit) const noexcept {
  return states_[unit].pooled ? pool_ + states_[unit].slot : views_ + units_[unit].offset;
}

size_t UnitMemory::growth(size_t unit) const {
  const size_t bytes = units_[unit].bytes;
  return is_kept_ || states_[unit].open || slots_.find(bytes) ? 0 : bytes;
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
    const auto slot = may_pool ? slots_.find(bytes) : std::nullopt;
    state.slot = slot.value_or(0);
    state.pooled = slot && alias(unit);
    if (state.pooled) {
      slots_.take(state.slot, bytes);
    } else if (mprotect(views_ + offset, bytes, PROT_READ | PROT_WRITE) != 0) {
      if (errno == ENOMEM) fail(DSC_ERR_NOMEM, "no memory for %zu bytes of a unit", bytes);
      fail_errno(errno, "mprotect of %zu bytes", bytes);
    }
    if (!state.pooled) held_ += bytes;
  }
  state.open = true;
}

void UnitMemory::close(size_t unit) {
  State& state = states_[unit];
  const auto [offset, bytes] = units_[unit];
  if (is_kept_) {
    std::memset(views_ + offset, 0, bytes);
    return;
  }
  if (bytes > 0) map_zeros(views_ + offset, bytes, faults_);
  if (state.pooled) slots_.release(state.slot);
  if (state.open && !state.pooled) held_ -= bytes;
  state = {};
}

size_t UnitMemory::alignment(bool is_kept) noexcept { return is_kept ? 1 : page_bytes(); }

}  // namespace dsc
