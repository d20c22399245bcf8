// Records which parameters an iteration uses, how often, and in which order. Unused parameters, static graphs
// and the rebuilding of buckets depend on this.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/comm.hpp"

namespace dsc {

// Only one thread at a time may use an object.
class Usage {
 public:
  Usage(size_t params, bool static_graph);

  // Starts an iteration that is reduced at its end.
  void begin();

  // Returns true in the first reduced iteration of a static graph, in which marks are only counted.
  bool is_counting() const noexcept { return static_graph_ && !counted_; }
  // Counts a mark. Returns true if it is the last mark of the parameter in this iteration.
  bool count_mark(size_t index);
  void take_back(size_t index);  // undoes the latest mark
  uint32_t marks(size_t index) const { return marks_[index]; }
  // Returns the number of marks that a parameter gets in each iteration. For a static graph, this is known
  // after the first reduced iteration.
  uint32_t expected_marks(size_t index) const { return expected_[index]; }
  bool is_frozen_unused(size_t index) const { return counted_ && expected_[index] == 0; }

  // Records that a parameter is ready. `used` is false if it has no gradient on this rank.
  void note_ready(size_t index, bool used);
  void forget_ready(size_t index);  // undoes note_ready()
  // Returns the parameters in the order in which they became ready. Those without a gradient are at the end.
  std::vector<size_t> ready_order() const;
  // Returns the same order without the parameters that have no gradient.
  std::span<const size_t> order() const { return order_; }
  const std::vector<int32_t>& used() const { return used_; }  // 1 for parameters with a gradient on this rank

  // Ends a reduced iteration. The first one fixes the counts of a static graph.
  void end();

 private:
  const bool static_graph_;
  bool counted_ = false;
  std::vector<uint32_t> marks_;
  std::vector<uint32_t> expected_;
  std::vector<int32_t> used_;
  std::vector<size_t> order_;  // parameters with gradients
  std::vector<size_t> empty_;  // parameters without gradients
};

// Collective. Returns the parameters that no rank used.
std::vector<size_t> find_unused(Comm& group, std::vector<int32_t> used);

}  // namespace dsc
