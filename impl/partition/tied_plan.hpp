// Finds the stages that hold layers with shared weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dsc {

// A layer that shares its weights under a key.
struct TiedEntry {
  std::string key;
  size_t layer;
};

// The stages with layers of one key.
struct TiedStages {
  size_t first_entry;           // index of the first entry with this key
  std::vector<int32_t> stages;  // ascending
};

// Returns one entry per key, sorted by the keys' bytes. Boundaries are those of a partition. Throws
// INVALID_ARG.
std::vector<TiedStages> plan_tied(std::span<const TiedEntry> entries, std::span<const size_t> boundaries);

}  // namespace dsc
