#include "reducer/memory_claims.hpp"

#include <iterator>
#include <utility>

namespace dsc {

MemoryClaims::MemoryClaims(size_t owners) : owners_(owners) {
  for (size_t i = 0; i < owners; ++i)
    owners_[i].spare = places_.extract(places_.emplace(i, Place{0, i}).first);
}

std::optional<size_t> MemoryClaims::claim(size_t owner, const void* begin, size_t bytes) {
  if (bytes == 0) return std::nullopt;
  const auto first = reinterpret_cast<uintptr_t>(begin);
  Owner& own = owners_[owner];
  const bool usual = own.spare.empty() && own.place->first == first && own.place->second.end == first + bytes;
  if (!usual) {
    take_out(own);
    if (const auto other = clear_range(first, first + bytes)) return other;
    own.spare.key() = first;
    own.spare.mapped().end = first + bytes;
    own.place = places_.insert(std::move(own.spare)).position;
  }
  own.claimed_in = iteration_;
  return std::nullopt;
}

void MemoryClaims::take_out(Owner& owner) {
  if (owner.spare.empty()) owner.spare = places_.extract(owner.place);
}

// Removes overlapping ranges of earlier iterations; stops at a range of this one and returns its owner.
std::optional<size_t> MemoryClaims::clear_range(uintptr_t begin, uintptr_t end) {
  auto place = places_.lower_bound(begin);
  if (place != places_.begin() && std::prev(place)->second.end > begin) --place;
  while (place != places_.end() && place->first < end) {
    Owner& owner = owners_[place->second.owner];
    if (owner.claimed_in == iteration_) return place->second.owner;
    ++place;
    take_out(owner);
  }
  return std::nullopt;
}

}  // namespace dsc
