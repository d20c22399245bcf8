// Ids of groups and of shared memory.
#pragma once

#include <cstdint>

namespace dsc {

// Derives an id from a parent's id and a number. It is equal on all ranks, and almost certainly differs from
// all other ids.
inline uint64_t mix_id(uint64_t parent, uint64_t number) noexcept {
  uint64_t value = parent * 0x9e3779b97f4a7c15u + number + 1;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace dsc
