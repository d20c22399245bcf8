#include "comm/describe.hpp"

#include <algorithm>
#include <cinttypes>

namespace dsc {

std::string list_ranks(std::span<const int32_t> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

FixedText<160> describe_found(const NonFinite& found) noexcept {
  FixedText<160> text;
  text.add("the input of rank %" PRId64 " is a NaN or infinite at element %" PRIu64 "; %" PRIu64 " %s",
           int64_t{found.source}, found.index, found.count,
           found.count == 1 ? "element of all inputs is NaN or infinite"
                            : "elements of all inputs are NaN or infinite");
  return text;
}

std::string describe_difference(const std::vector<std::string>& calls) {
  std::vector<std::string> kinds;
  for (const std::string& call : calls)
    if (std::find(kinds.begin(), kinds.end(), call) == kinds.end()) kinds.push_back(call);
  std::string text;
  for (const std::string& kind : kinds) {
    std::vector<int32_t> ranks;
    for (size_t rank = 0; rank < calls.size(); ++rank)
      if (calls[rank] == kind) ranks.push_back(static_cast<int32_t>(rank));
    text += (text.empty() ? "" : "; ") + list_ranks(ranks) + ": " + kind;
  }
  return text;
}

}  // namespace dsc
