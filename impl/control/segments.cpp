#include "control/segments.hpp"

#include "base/pages.hpp"

namespace dsc {

Segments::Segments(uint64_t id, size_t bytes, int ranks, int own_rank)
    : id(id), bytes(bytes), own_rank_(own_rank), mappings_(static_cast<size_t>(ranks)) {}

size_t Segments::mark_offset() const noexcept {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

size_t Segments::whole_bytes() const noexcept { return mark_offset() + sizeof(std::atomic<uint32_t>); }

UniqueFd Segments::create(int copies) {
  UniqueFd fd = create_segment("dsc-memory", bytes, static_cast<size_t>(copies), whole_bytes() - bytes);
  map(own_rank_, fd.get());
  return fd;
}

void Segments::map(int local_rank, int fd) {
  mappings_[static_cast<size_t>(local_rank)] = map_segment(fd, whole_bytes(), OnFork::kInherited);
}

void Segments::leave() noexcept {
  if (has_part(own_rank_)) mark(own_rank_).store(1, std::memory_order_release);
  mappings_[static_cast<size_t>(own_rank_)].reset();
  left_.store(true, std::memory_order_release);
}

}  // namespace dsc
