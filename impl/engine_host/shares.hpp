// Division of the elements of a reduction into one share per member.
#pragma once

#include <algorithm>
#include <cstddef>

namespace dsc {

// So many elements of any type are whole cache lines.
inline constexpr size_t kLineElements = 64;

struct Share {
  size_t first;
  size_t elements;
};

// Returns the share of a member. Shares begin at multiples of kLineElements.
inline Share share_of(int member, int members, size_t elements) noexcept {
  const auto size = static_cast<size_t>(members);
  const size_t lines = (elements + kLineElements - 1) / kLineElements;
  const size_t each = (lines + size - 1) / size * kLineElements;
  const size_t first = std::min(elements, static_cast<size_t>(member) * each);
  return {first, std::min(each, elements - first)};
}

}  // namespace dsc
