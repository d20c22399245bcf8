// Tests whether two ranges of memory share a byte. An empty range shares none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsc {

inline bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) noexcept {
  const auto a_begin = reinterpret_cast<uintptr_t>(a), b_begin = reinterpret_cast<uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

}  // namespace dsc
