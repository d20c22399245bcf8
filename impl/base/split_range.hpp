// Divides a range into parts that are as equal as possible.
#pragma once

#include <algorithm>
#include <cstddef>

namespace dsc {

struct Range {
  size_t begin;
  size_t count;
};

// The first count % parts parts are longer by one element. `parts` must be above 0.
inline Range split_range(size_t count, size_t parts, size_t part) noexcept {
  const size_t least = count / parts, longer = count % parts;
  return {part * least + std::min(part, longer), least + (part < longer ? 1 : 0)};
}

}  // namespace dsc
