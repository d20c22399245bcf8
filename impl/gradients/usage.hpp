// Which parameters an iteration uses, how often and in which order. Unused parameters, static graphs and the
// rebuilding of buckets are based on it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/comm.hpp"

namespace dsc {

// One thread at a time.
class Usage {
 public:
  Usage(size_t params, bool static_graph);

  // Starts an iteration that is reduced at its end.
  void begin();

  // True in the first reduced iteration of a static graph, in which marks are only counted.
  bool is_counting() const noexcept { return static_graph_ && !counted_; }
  // Counts a mark. Returns true if it is the last one that the parameter gets in an iteration.
  bool count_mark(size_t index);
  void take_back(size_t index);  // the latest mark is undone
  uint32_t marks(size_t index) const { return marks_[index]; }
  // The number of marks that a parameter gets in each iteration. Known once a static graph was counted.
  uint32_t expected_marks(size_t index) const { return expected_[index]; }
  bool is_frozen_unused(size_t index) const { return counted_ && expected_[index] == 0; }

  // Notes that a parameter is ready, with a gradient of this rank or without.
  void note_ready(size_t index, bool used);
  void forget_ready(size_t index);  // the mark is undone
  // The parameters in the order in which they became ready; those without a gradient come last.
  std::vector<size_t> ready_order() const;
  // The same, without those that have no gradient.
  std::span<const size_t> order() const { return order_; }
  const std::vector<int32_t>& used() const { return used_; }  // 1 if this rank has a gradient

  // Ends a reduced iteration; the counts of a static graph are fixed by its first one.
  void end();

 private:
  const bool static_graph_;
  bool counted_ = false;
  std::vector<uint32_t> marks_;
  std::vector<uint32_t> expected_;
  std::vector<int32_t> used_;
  std::vector<size_t> order_;  // parameters with gradients
  std::vector<size_t> empty_;  // those without
};

// Collective: returns the parameters that no rank used.
std::vector<size_t> find_unused(Comm& group, std::vector<int32_t> used);

}  // namespace dsc
