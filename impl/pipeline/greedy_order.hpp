// Orders that are found for given costs: whoever is free takes what promises most.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "pipeline/simulate.hpp"

namespace dsc {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// What a stage may hold; 0: without limit.
struct PipelineLimits {
  int64_t activations = 0;  // micro-batches times chunks
  double bytes = 0;         // with static bytes
};

// How a stage chooses.
struct GreedyRules {
  bool forward_first = false;   // a forward pass before a backward pass that could run as well
  bool deep_first = true;       // the later chunk before the earlier one
  double patience = 0;          // waits for an input that comes within so much of a weight half's time
  int64_t most_ahead = 0;       // forward passes that stage 0 may be ahead of its backward passes; 0: any
  int64_t ahead_per_stage = 0;  // by how much fewer on each following stage
};

// Lets stages run in time by these rules. Null if they get stuck for want of memory.
std::shared_ptr<ComputeOrder> greedy_order(const PipelinePlan& shape, const PipelineCosts& costs,
                                           const PipelineLimits& limits, const GreedyRules& rules);

}  // namespace dsc
