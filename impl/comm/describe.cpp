#include "comm/describe.hpp"

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

}  // namespace dsc
