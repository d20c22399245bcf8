// The names of units in messages.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bucket_plan/shard_layout.hpp"
#include "comm/tensor.hpp"

namespace dsc {

// Returns a name for each unit, such as "unit 3 (h.2.weight)". It contains the name of the unit's first
// parameter, if that has one.
inline std::vector<std::string> unit_labels(const ShardLayout& layout, std::span<const Tensor> params) {
  std::vector<std::string> labels(layout.units.size());
  for (size_t i = params.size(); i-- > 0;) {
    const size_t unit = layout.buckets[layout.locations[i].bucket].unit;
    labels[unit] = "unit " + std::to_string(unit);
    if (params[i].name) labels[unit] += " (" + clipped(params[i].name, 100) + ")";
  }
  return labels;
}

}  // namespace dsc
