#include "sharded/prefetch.hpp"

#include <algorithm>
#include <utility>

namespace dsc {

void UseOrder::note(size_t unit) {
  const size_t index = noted_.size();
  follows_ = follows_ && index < expected_.size() && expected_[index] == unit;
  noted_.push_back(unit);
}

void UseOrder::end_step() {
  // A step that used no unit, for example because it was skipped, does not predict the next step.
  if (!noted_.empty()) expected_ = std::move(noted_);
  noted_.clear();
  follows_ = true;
}

std::vector<size_t> UseOrder::next(size_t most) const {
  if (!follows_) return {};
  const size_t begin = std::min(noted_.size(), expected_.size());
  const size_t end = std::min(begin + most, expected_.size());
  return {expected_.begin() + static_cast<std::ptrdiff_t>(begin),
          expected_.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace dsc
