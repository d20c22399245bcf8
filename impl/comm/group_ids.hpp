// Ids of groups and memory.
#pragma once

#include <cstdint>

namespace dsc {

// Ids that all ranks derive alike, and that meet no other id by any reasonable chance.
inline uint64_t mix_id(uint64_t parent, uint64_t number) noexcept {
  uint64_t value = parent * 0x9e3779b97f4a7c15u + number + 1;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace dsc
