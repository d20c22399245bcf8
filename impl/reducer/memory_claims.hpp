// The gradients' memory of one iteration: no two may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace dsc {

// Places of earlier iterations stay until they are in the way, so that a gradient at its usual place costs
// one comparison. Claiming never allocates.
class MemoryClaims {
 public:
  explicit MemoryClaims(size_t owners);

  void next_iteration() noexcept { ++iteration_; }

  // Claims [begin, begin + bytes) for this iteration, or returns the owner of this iteration's claim that
  // overlaps it.
  std::optional<size_t> claim(size_t owner, const void* begin, size_t bytes);

 private:
  struct Place {
    uintptr_t end = 0;
    size_t owner = 0;
  };
  using Places = std::map<uintptr_t, Place>;  // disjoint, by begin
  struct Owner {
    Places::node_type spare;  // its place while it has none
    Places::iterator place;   // valid while spare is empty
    uint64_t claimed_in = 0;  // iteration
  };

  void take_out(Owner& owner);
  std::optional<size_t> clear_range(uintptr_t begin, uintptr_t end);

  uint64_t iteration_ = 1;
  Places places_;
  std::vector<Owner> owners_;
};

}  // namespace dsc
