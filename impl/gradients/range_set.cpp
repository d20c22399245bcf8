#include "gradients/range_set.hpp"

#include <iterator>
#include <utility>

namespace dsc {

RangeSet::RangeSet(size_t owners) : owners_(owners) {
  for (size_t i = 0; i < owners; ++i)
    owners_[i].spare = ranges_.extract(ranges_.emplace(i, Range{0, i}).first);
}

std::optional<size_t> RangeSet::add(size_t owner, const void* begin, size_t bytes) {
  if (bytes == 0) return std::nullopt;
  const auto first = reinterpret_cast<uintptr_t>(begin);
  Owner& own = owners_[owner];
  const bool usual = own.spare.empty() && own.range->first == first && own.range->second.end == first + bytes;
  if (!usual) {
    take_out(own);
    if (const auto other = clear_range(first, first + bytes)) return other;
    own.spare.key() = first;
    own.spare.mapped().end = first + bytes;
    own.range = ranges_.insert(std::move(own.spare)).position;
  }
  own.added_in = iteration_;
  return std::nullopt;
}

void RangeSet::take_out(Owner& owner) {
  if (owner.spare.empty()) owner.spare = ranges_.extract(owner.range);
}

// Removes the ranges of earlier iterations that overlap the given one. If a range of this iteration overlaps
// it, stops there and returns its owner.
std::optional<size_t> RangeSet::clear_range(uintptr_t begin, uintptr_t end) {
  auto range = ranges_.lower_bound(begin);
  if (range != ranges_.begin() && std::prev(range)->second.end > begin) --range;
  while (range != ranges_.end() && range->first < end) {
    Owner& owner = owners_[range->second.owner];
    if (owner.added_in == iteration_) return range->second.owner;
    ++range;
    take_out(owner);
  }
  return std::nullopt;
}

}  // namespace dsc
