#include "partition/tied_plan.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"

namespace dsc {
namespace {

void check_boundaries(std::span<const size_t> boundaries) {
  if (boundaries[0] != 0) fail(DSC_ERR_INVALID_ARG, "boundaries[0] is %zu, expected 0", boundaries[0]);
  for (size_t p = 1; p < boundaries.size(); ++p)
    if (boundaries[p] < boundaries[p - 1])
      fail(DSC_ERR_INVALID_ARG, "boundaries[%zu] is %zu, expected at least boundaries[%zu], %zu", p,
           boundaries[p], p - 1, boundaries[p - 1]);
}

// The layers and stages in which one key occurs.
struct Holders {
  size_t first_entry = 0;
  std::set<size_t> layers;
  std::set<int32_t> stages;
};

}  // namespace

std::vector<TiedStages> plan_tied(std::span<const TiedEntry> entries, std::span<const size_t> boundaries) {
  check_boundaries(boundaries);
  std::map<std::string, Holders> keys;
  for (size_t e = 0; e < entries.size(); ++e) {
    const auto& [key, layer] = entries[e];
    if (key.empty()) fail(DSC_ERR_INVALID_ARG, "keys[%zu] is empty, expected a name", e);
    if (layer >= boundaries.back())
      fail(DSC_ERR_INVALID_ARG, "layers[%zu] is %zu, expected less than %zu, the last boundary", e, layer,
           boundaries.back());
    const auto [entry, is_new] = keys.try_emplace(key);
    Holders& holders = entry->second;
    if (is_new) holders.first_entry = e;
    if (!holders.layers.insert(layer).second)
      fail(DSC_ERR_INVALID_ARG, "layer %zu has key '%s' twice, expected once", layer, key.c_str());
    const auto after = std::ranges::upper_bound(boundaries, layer);
    holders.stages.insert(static_cast<int32_t>(after - boundaries.begin()) - 1);
  }
  std::vector<TiedStages> plan;
  plan.reserve(keys.size());
  for (const auto& [key, holders] : keys)
    plan.push_back({holders.first_entry, {holders.stages.begin(), holders.stages.end()}});
  return plan;
}

}  // namespace dsc
