// Which stages hold the layers that share their weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dsc {

struct TiedEntry {
  std::string key;
  size_t layer;
};

struct TiedStages {
  size_t first_entry;           // with this key
  std::vector<int32_t> stages;  // rising
};

// One per key, in the order of the keys' bytes. Boundaries are those of a partition. Throws INVALID_ARG.
std::vector<TiedStages> plan_tied(std::span<const TiedEntry> entries, std::span<const size_t> boundaries);

}  // namespace dsc
