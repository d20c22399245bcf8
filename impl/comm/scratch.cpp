#include "comm/scratch.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <sys/mman.h>

namespace dsc {

struct Scratch::Lease {
  Lease(std::weak_ptr<Scratch> owner_in, Block block_in) noexcept
      : owner(std::move(owner_in)), block(std::move(block_in)) {}
  ~Lease() {
    if (const auto lender = owner.lock()) lender->give_back(std::move(block));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const std::weak_ptr<Scratch> owner;
  Block block;
};

std::shared_ptr<std::byte> Scratch::take(size_t bytes) {
  if (bytes == 0) return nullptr;
  Block block = take_free(bytes);
  // Larger than needed, because the next call may need more.
  if (!block.memory) block = allocate(bytes + bytes / 8);
  const auto lease = std::make_shared<Lease>(weak_from_this(), std::move(block));
  return {lease, lease->block.memory.get()};
}

// Large blocks request huge pages, because accesses to rows are spread over the whole block.
Scratch::Block Scratch::allocate(size_t bytes) {
  constexpr size_t kLargePage = size_t{2} << 20, kLine = 64;
  const size_t alignment = bytes >= kLargePage ? kLargePage : kLine;
  const size_t whole = (bytes / alignment + 1) * alignment;
  Block block{{static_cast<std::byte*>(std::aligned_alloc(alignment, whole)), {}}, whole};
  if (!block.memory) throw std::bad_alloc();
  if (alignment == kLargePage) static_cast<void>(::madvise(block.memory.get(), whole, MADV_HUGEPAGE));
  return block;
}

// Returns the smallest free block that is large enough. If there is none, frees the largest block and returns
// an empty one, so that the caller allocates a larger block.
Scratch::Block Scratch::take_free(size_t bytes) {
  const MutexLock lock(mutex_);
  auto found = std::ranges::lower_bound(free_, bytes, {}, &Block::bytes);
  if (found == free_.end()) {
    if (!free_.empty()) free_.pop_back();
    return {};
  }
  Block block = std::move(*found);
  free_.erase(found);
  return block;
}

void Scratch::give_back(Block block) noexcept {
  const MutexLock lock(mutex_);
  free_.insert(std::ranges::upper_bound(free_, block.bytes, {}, &Block::bytes), std::move(block));
  if (free_.size() > kMostFree) free_.erase(free_.begin());
}

}  // namespace dsc
