// Divides a dimension into one part per rank, and derives the blocks of a call from these parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "comm/group_ids.hpp"
#include "control/call.hpp"

namespace dsc {

// How the elements of a dimension are divided among the ranks.
class Division {
 public:
  // Divides into equal parts; `ranks` must divide `total`.
  Division(size_t total, int ranks) noexcept : total_(total), part_(total / static_cast<size_t>(ranks)) {}
  explicit Division(std::shared_ptr<const BlockList> parts) noexcept
      : total_(parts->total()), parts_(std::move(parts)) {}

  size_t total() const noexcept { return total_; }
  size_t part(int rank) const noexcept { return parts_ ? parts_->lengths[static_cast<size_t>(rank)] : part_; }
  size_t start(int rank) const noexcept {
    return parts_ ? parts_->starts[static_cast<size_t>(rank)] : part_ * static_cast<size_t>(rank);
  }
  // Returns null if the parts are equal.
  const std::shared_ptr<const BlockList>& parts() const noexcept { return parts_; }

 private:
  size_t total_;
  size_t part_ = 0;
  std::shared_ptr<const BlockList> parts_;
};

// Returns a hash of a division; `start` is the hash of preceding data.
inline uint64_t hash_of(const Division& division, uint64_t start) noexcept {
  return mix_id(start, division.parts() ? hash_of(*division.parts()) : division.total());
}

// Returns a list of the lengths `of(rank)` of all ranks.
template <typename Of>
std::shared_ptr<const BlockList> list_of(int ranks, const Of& of) {
  std::vector<size_t> lengths(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) lengths[static_cast<size_t>(rank)] = of(rank);
  return std::make_shared<const BlockList>(std::move(lengths));
}

// Returns the columns of each rank in a matrix whose columns are divided; one element of the division is
// `unit` columns.
inline Columns columns_of(const Division& division, size_t unit, int ranks) {
  if (!division.parts()) return {division.part(0) * unit, nullptr};
  return {0, list_of(ranks, [&](int rank) { return division.part(rank) * unit; })};
}

inline void set_columns(Call& call, const ColumnBlocks& columns) {
  call.columns = std::make_shared<const ColumnBlocks>(columns);
}

// Sets the buffers of a call. If exactly one of them is empty, its address is dropped: it may be in the wrong
// kind of memory, and only the other address determines where the data is.
inline void set_buffers(Call& call, const void* send, size_t sent, void* recv, size_t received) noexcept {
  call.send = sent > 0 || received == 0 ? send : nullptr;
  call.recv = received > 0 || sent == 0 ? recv : nullptr;
}

}  // namespace dsc
