// Checks that the gradients of one iteration do not overlap in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace dsc {

// Ranges of earlier iterations are kept until another range overlaps them. A gradient that has the same
// address as before therefore costs only one comparison. add() never allocates memory.
class RangeSet {
 public:
  explicit RangeSet(size_t owners);

  void next_iteration() noexcept { ++iteration_; }

  // Adds the range [begin, begin + bytes) to this iteration. If another range of this iteration overlaps it,
  // returns the owner of that range instead.
  std::optional<size_t> add(size_t owner, const void* begin, size_t bytes);

 private:
  struct Range {
    uintptr_t end = 0;
    size_t owner = 0;
  };
  using Ranges = std::map<uintptr_t, Range>;  // disjoint ranges, sorted by their start
  struct Owner {
    Ranges::node_type spare;  // map node, kept while the owner has no range
    Ranges::iterator range;   // valid while spare is empty
    uint64_t added_in = 0;    // iteration of the latest add
  };

  void take_out(Owner& owner);
  std::optional<size_t> clear_range(uintptr_t begin, uintptr_t end);

  uint64_t iteration_ = 1;
  Ranges ranges_;
  std::vector<Owner> owners_;
};

}  // namespace dsc
