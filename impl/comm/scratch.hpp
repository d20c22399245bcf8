// Memory for a step of a call, kept for later calls: the first use of a fresh page takes longer than moving
// the data in it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/mutex.hpp"

namespace dsc {

// Any thread.
class Scratch : public std::enable_shared_from_this<Scratch> {
 public:
  Scratch() { free_.reserve(kMostFree + 1); }
  // Returns at least `bytes` of uninitialised memory; null for 0 bytes. It returns to this object when its
  // last holder releases it.
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
  std::vector<Block> free_ DSC_GUARDED_BY(mutex_);  // the smallest first
};

}  // namespace dsc
