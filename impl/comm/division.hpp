// Parts of a dimension, one for each rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "comm/group_ids.hpp"
#include "control/call.hpp"

namespace dsc {

// How the elements of a dimension are divided among the ranks.
class Division {
 public:
  // Into equal parts; `ranks` must divide `total`.
  Division(size_t total, int ranks) noexcept : total_(total), part_(total / static_cast<size_t>(ranks)) {}
  explicit Division(std::shared_ptr<const BlockList> parts) noexcept
      : total_(parts->total()), parts_(std::move(parts)) {}

  size_t total() const noexcept { return total_; }
  size_t part(int rank) const noexcept { return parts_ ? parts_->lengths[static_cast<size_t>(rank)] : part_; }
  size_t start(int rank) const noexcept {
    return parts_ ? parts_->starts[static_cast<size_t>(rank)] : part_ * static_cast<size_t>(rank);
  }
  // Null if the parts are equal.
  const std::shared_ptr<const BlockList>& parts() const noexcept { return parts_; }

 private:
  size_t total_;
  size_t part_ = 0;
  std::shared_ptr<const BlockList> parts_;
};

// Returns a hash of a division that goes on from `start`.
inline uint64_t hash_of(const Division& division, uint64_t start) noexcept {
  return mix_id(start, division.parts() ? hash_of(*division.parts()) : division.total());
}

}  // namespace dsc
