// The shared memory of one allocation: a segment for each of its ranks, and all these ranks map all segments.
// Each rank keeps the segments of the others mapped until every rank has freed its part. So while an
// operation is incomplete for the owner of a buffer, all ranks of the allocation have that buffer mapped.
// Afterwards, they may have unmapped it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "control/shared_memory.hpp"

namespace dsc {

class Segments {
 public:
  // `bytes` is the size of each segment, and `id` is equal on all ranks of the allocation. Local ranks are
  // the numbers of ranks of this host: `ranks` is their number, and `own_rank` the one of this rank.
  Segments(uint64_t id, size_t bytes, int ranks, int own_rank);

  // Creates this rank's segment, and returns what other ranks of the allocation map. `copies` is the number
  // of ranks that create one. Throws NOSPACE.
  UniqueFd create(int copies);
  // Maps the segment of another rank.
  void map(int local_rank, int fd);

  bool has_part(int local_rank) const noexcept {
    const auto index = static_cast<size_t>(local_rank);
    return index < mappings_.size() && mappings_[index] != nullptr;
  }
  // The segment of a rank, as this process has mapped it.
  std::byte* base(int local_rank) const noexcept {
    return mappings_[static_cast<size_t>(local_rank)]->data();
  }
  std::byte* own_base() const noexcept { return base(own_rank_); }
  // Returns whether the segment of `local_rank` is mapped and contains [offset, offset + length).
  bool holds(int local_rank, uint64_t offset, size_t length) const noexcept {
    return has_part(local_rank) && offset <= bytes && length <= bytes - offset;
  }

  // Unmaps this rank's segment, and announces that this rank has freed its part. No thread may still use it.
  void leave() noexcept;
  // Returns whether all ranks have freed their parts. `has_ended(local_rank)` tells whether the process of a
  // rank has ended.
  template <typename HasEnded>
  bool all_have_left(const HasEnded& has_ended) const noexcept {
    if (!left_.load(std::memory_order_acquire)) return false;
    for (int rank = 0; rank < static_cast<int>(mappings_.size()); ++rank)
      if (rank != own_rank_ && has_part(rank) && mark(rank).load(std::memory_order_acquire) == 0 &&
          !has_ended(rank))
        return false;
    return true;
  }

  const uint64_t id;
  const size_t bytes;

 private:
  size_t mark_offset() const noexcept;
  size_t whole_bytes() const noexcept;
  // In a page of its own at the end of the segment of a rank: 1 if the rank has freed its part.
  std::atomic<uint32_t>& mark(int local_rank) const noexcept {
    return *reinterpret_cast<std::atomic<uint32_t>*>(base(local_rank) + mark_offset());
  }

  const int own_rank_;
  std::atomic<bool> left_{false};
  std::vector<std::shared_ptr<Mapping>> mappings_;  // by local rank; null for ranks without a segment
};

}  // namespace dsc
