// Explains why no partition satisfies the memory limits.
#include <algorithm>
#include <numeric>

#include "base/error.hpp"
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
      fail(DSC_ERR_INVALID_ARG, "layer %zu takes %llu bytes, more than any part may hold (%llu)", i,
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

// Throws an error that explains why `part` cannot end anywhere.
[[noreturn]] void fail_at(const PartitionRequest& request, const std::vector<bool>& starts, size_t part) {
  const size_t last = last_of(starts);
  if (request.parts == 1)
    fail(DSC_ERR_INVALID_ARG, "part 0 cannot hold all %zu layers: its limit is %llu bytes", request.layers,
         Number{limit_of(request, part)});
  if (part + 1 == request.parts) {
    const uint64_t rest = std::accumulate(request.bytes.begin() + static_cast<ptrdiff_t>(last),
                                          request.bytes.end(), uint64_t{0});
    fail(DSC_ERR_INVALID_ARG,
         "part %zu cannot hold the remaining layers: the parts before it hold layers 0 to %zu at most, the "
         "other %zu layers take %llu bytes, and its limit is %llu",
         part, last - 1, request.layers - last, Number{rest}, Number{limit_of(request, part)});
  }
  fail(DSC_ERR_INVALID_ARG,
       "part %zu cannot hold any of the layers that it could begin with (%zu to %zu): each takes more bytes "
       "than its limit, which is %llu",
       part, first_of(starts), last, Number{limit_of(request, part)});
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
  fail(DSC_ERR_INTERNAL, "no partition is within the limits, for an unknown reason");
}

}  // namespace dsc
