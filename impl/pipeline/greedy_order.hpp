// Orders found by a greedy rule for given costs: a free stage takes the operation that promises most.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "pipeline/simulate.hpp"

namespace dsc {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// Limits of what a stage may hold; 0 means no limit.
struct PipelineLimits {
  int64_t activations = 0;  // micro-batches times chunks
  double bytes = 0;         // includes static bytes
};

// The rules by which a stage chooses its next operation.
struct GreedyRules {
  bool forward_first = false;  // prefer a forward pass to a backward pass if both could run
  bool deep_first = true;      // prefer the later chunk to the earlier one
  double wait_fraction = 0;    // wait for an input that arrives within this fraction of a weight half's time
  // limit of forward passes that stage 0 may be ahead of its backward passes; 0: none
  int64_t most_ahead = 0;
  int64_t ahead_per_stage = 0;  // amount by which that limit decreases with each stage
};

// Simulates the stages with these rules. Returns null if they get stuck because of the limits.
std::shared_ptr<ComputeOrder> greedy_order(const PipelinePlan& shape, const PipelineCosts& costs,
                                           const PipelineLimits& limits, const GreedyRules& rules);

}  // namespace dsc
