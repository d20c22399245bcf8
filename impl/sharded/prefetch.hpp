// The order in which units are used in a step. From it the next step learns what to gather ahead.
#pragma once

#include <cstddef>
#include <vector>

namespace dsc {

class UseOrder {
 public:
  // Notes the use of a unit.
  void note(size_t unit);
  // Ends a step: its order becomes the expected one.
  void end_step();
  // Returns the units that followed the latest use in the previous step, at most `most` of them; none if this
  // step has taken a different order.
  std::vector<size_t> next(size_t most) const;

 private:
  std::vector<size_t> expected_;
  std::vector<size_t> noted_;
  bool follows_ = true;
};

}  // namespace dsc
