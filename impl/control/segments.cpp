#include "control/segments.hpp"

#include "base/pages.hpp"

namespace dsc {

Segments::Segments(uint64_t id, size_t bytes, int ranks, int own_rank)
    : id(id), bytes(bytes), own_rank_(own_rank), mappings_(static_cast<size_t>(ranks)) {}

size_t Segments::mark_offset() const noexcept {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

UniqueFd Segments::create(int copies) {
  UniqueFd fd = create_segment("dsc-memory", mark_offset() + sizeof(uint32_t), static_cast<size_t>(copies));
  map(own_rank_, fd.get());
  return fd;
}

void Segments::map(int local_rank, int fd) {
  mappings_[static_cast<size_t>(local_rank)] =
      map_segment(fd, mark_offset() + sizeof(uint32_t), OnFork::kInherited);
}

void Segments::leave() noexcept {
  if (is_mapped_by(own_rank_)) mark(own_rank_).store(1, std::memory_order_release);
  mappings_[static_cast<size_t>(own_rank_)].reset();
  left_.store(true, std::memory_order_release);
}

}  // namespace dsc
