#include "comm/describe.hpp"

#include <cinttypes>

#include "base/joined.hpp"

namespace dsc {

std::string list_ranks(std::span<const int32_t> ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + joined(ranks, ", ");
}

FixedText<160> describe_found(const NonFinite& found) noexcept {
  FixedText<160> text;
  text.add("the input of rank %" PRId64 " is NaN or infinite at element %" PRIu64 "; over all ranks, %" PRIu64
           " %s NaN or infinite",
           int64_t{found.source}, found.index, found.count, found.count == 1 ? "element is" : "elements are");
  return text;
}

void say_if_late(Failure& failure, int32_t self, OpKind kind, uint64_t sequence) noexcept {
  const bool is_cause =
      failure.sequence == sequence && failure.operation == std::string_view(op_kind_name(kind));
  if (is_cause && failure.code == DSC_ERR_TIMEOUT && failure.ranks == RankList{self})
    failure.text.add("; this is rank %d, which arrived late", self);
}

}  // namespace dsc
