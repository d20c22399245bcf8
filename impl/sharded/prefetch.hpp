// Records the order in which units are used in a step. The next step uses it to choose which units to gather
// ahead.
#pragma once

#include <cstddef>
#include <vector>

namespace dsc {

class UseOrder {
 public:
  // Records the use of a unit.
  void note(size_t unit);
  // Ends a step. Its order is expected from the next step.
  void end_step();
  // Returns the units that followed the latest used one in the previous step, at most `most` of them. Returns
  // none if this step uses units in a different order.
  std::vector<size_t> next(size_t most) const;

 private:
  std::vector<size_t> expected_;
  std::vector<size_t> noted_;
  bool follows_ = true;
};

}  // namespace dsc
