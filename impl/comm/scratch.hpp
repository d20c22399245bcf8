// Temporary memory for a call, which is kept for later calls. The first use of a fresh page takes longer than
// moving the data in it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/mutex.hpp"

namespace dsc {

// May be used from any thread.
class Scratch : public std::enable_shared_from_this<Scratch> {
 public:
  Scratch() { free_.reserve(kMostFree + 1); }
  // Returns at least `bytes` bytes of uninitialized memory; null for 0 bytes. When the last reference is
  // dropped, the memory returns to this object.
  std::shared_ptr<std::byte> take(size_t bytes);

 private:
  static constexpr size_t kMostFree = 4;
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  struct Block {
    std::unique_ptr<std::byte, Free> memory;
    size_t bytes = 0;
  };
  struct Lease;

  static Block allocate(size_t bytes);
  Block take_free(size_t bytes);
  void give_back(Block block) noexcept;

  Mutex mutex_;
  std::vector<Block> free_ DSC_GUARDED_BY(mutex_);  // sorted, the smallest first
};

}  // namespace dsc
