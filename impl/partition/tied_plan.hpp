// Finds the stages whose layers share weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dsc {

// A layer that shares its weights with other layers of the same key.
struct TiedEntry {
  std::string key;
  size_t layer;
};

// The stages with layers of one key.
struct TiedStages {
  size_t first_entry;           // index of the first entry with this key
  std::vector<int32_t> stages;  // ascending
};

// Returns one entry per key, sorted by the bytes of the keys. `boundaries` must be those of a partition.
// Throws INVALID_ARG for invalid entries or boundaries.
std::vector<TiedStages> plan_tied(std::span<const TiedEntry> entries, std::span<const size_t> boundaries);

}  // namespace dsc
