// Tracks which parts of a pool of memory are in use.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace dsc {

class PoolSlots {
 public:
  explicit PoolSlots(size_t bytes = 0) noexcept : bytes_(bytes) {}

  size_t bytes() const noexcept { return bytes_; }

  // Returns the start of the first free part of the pool that is large enough; nullopt if there is none.
  std::optional<size_t> find(size_t bytes) const {
    size_t start = 0;
    for (const auto& [used, length] : used_) {
      if (used - start >= bytes) return start;
      start = used + length;
    }
    if (bytes_ - start < bytes) return std::nullopt;
    return start;
  }

  void take(size_t start, size_t bytes) { used_.emplace(start, bytes); }
  void release(size_t start) { used_.erase(start); }

 private:
  size_t bytes_;
  std::map<size_t, size_t> used_;  // start and length of each used part
};

}  // namespace dsc
