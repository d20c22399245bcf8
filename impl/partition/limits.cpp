// Explains why no partition satisfies the memory limits.
#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "base/joined.hpp"
#include "partition/partition.hpp"

namespace dsc {
namespace {

using Number = unsigned long long;

uint64_t limit_of(const PartitionRequest& request, size_t part) {
  return request.limits.size() == 1 ? request.limits[0] : request.limits[part];
}

void check_each_layer(const PartitionRequest& request) {
  const uint64_t most = std::ranges::max(request.limits);
  for (size_t i = 0; i < request.layers; ++i)
    if (request.bytes[i] > most)
      fail(DSC_ERR_INVALID_ARG, "layer %zu has %llu bytes, more than the largest limit of a part (%llu)", i,
           Number{request.bytes[i]}, Number{most});
}

// Returns at which layers a part can end. `starts` are the layers at which it can start.
std::vector<bool> next_ends(const PartitionRequest& request, const std::vector<bool>& starts, size_t part) {
  const size_t last = request.layers - (request.parts - 1 - part);
  std::vector<bool> ends(request.layers + 1);
  size_t from = 0;
  size_t possible = 0;  // number of possible starts in [from, end)
  uint64_t held = 0;    // bytes of the layers [from, end)
  for (size_t end = 1; end <= last; ++end) {
    possible += starts[end - 1] ? 1 : 0;
    held += request.bytes[end - 1];
    while (held > limit_of(request, part)) {
      possible -= starts[from] ? 1 : 0;
      held -= request.bytes[from++];
    }
    ends[end] = possible > 0;
  }
  return ends;
}

size_t first_of(const std::vector<bool>& flags) {
  return static_cast<size_t>(std::find(flags.begin(), flags.end(), true) - flags.begin());
}

size_t last_of(const std::vector<bool>& flags) {
  return flags.size() - 1 -
         static_cast<size_t>(std::find(flags.rbegin(), flags.rend(), true) - flags.rbegin());
}

uint64_t bytes_from(const PartitionRequest& request, size_t layer) {
  return std::accumulate(request.bytes.begin() + static_cast<ptrdiff_t>(layer), request.bytes.end(),
                         uint64_t{0});
}

// Returns the layers whose flag is set, such as "layer 1", "layers 1 to 5" or "layers 1, 3, 4". A long list
// with gaps ends with the number of the remaining layers.
std::string layers_text(const std::vector<bool>& flags) {
  std::vector<size_t> layers;
  for (size_t i = 0; i < flags.size(); ++i)
    if (flags[i]) layers.push_back(i);
  if (layers.size() == 1) return "layer " + std::to_string(layers[0]);
  const bool has_gaps = layers.back() - layers.front() + 1 != layers.size();
  if (layers.size() > 2 && !has_gaps)
    return "layers " + std::to_string(layers.front()) + " to " + std::to_string(layers.back());
  return "layers " + first_joined(layers, 8, std::identity{});
}

// Throws an error that explains why `part` cannot end anywhere.
[[noreturn]] void fail_at(const PartitionRequest& request, const std::vector<bool>& starts, size_t part) {
  const size_t last = last_of(starts);
  if (request.parts == 1)
    fail(DSC_ERR_INVALID_ARG,
         "part 0 cannot hold all %zu layers: they have %llu bytes, and the limit of this part is %llu bytes",
         request.layers, Number{bytes_from(request, 0)}, Number{limit_of(request, part)});
  if (part + 1 == request.parts)
    fail(DSC_ERR_INVALID_ARG,
         "part %zu cannot hold the remaining layers: the previous parts can hold at most layers 0 to %zu, "
         "the other %zu layers have %llu bytes, and the limit of this part is %llu bytes",
         part, last - 1, request.layers - last, Number{bytes_from(request, last)},
         Number{limit_of(request, part)});
  fail(DSC_ERR_INVALID_ARG,
       "part %zu can begin only with %s, %s more bytes than the limit of this part (%llu)", part,
       layers_text(starts).c_str(), first_of(starts) == last ? "which has" : "each of which has",
       Number{limit_of(request, part)});
}

}  // namespace

void explain_limits(const PartitionRequest& request) {
  check_each_layer(request);
  std::vector<bool> starts(request.layers + 1);
  starts[0] = true;
  for (size_t part = 0; part < request.parts; ++part) {
    auto ends = next_ends(request, starts, part);
    const bool is_last = part + 1 == request.parts;
    if (is_last ? !ends[request.layers] : first_of(ends) > request.layers) fail_at(request, starts, part);
    starts = std::move(ends);
  }
  fail(DSC_ERR_INTERNAL, "no partition satisfies the limits, for an unknown reason");
}

}  // namespace dsc
