// Finds orders for given costs by a greedy rule: a stage that is free chooses its next operation only by what
// can start soonest and by a few preferences.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "pipeline/simulate.hpp"

namespace dsc {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// Limits on what a stage may hold at the same time; 0 means no limit.
struct PipelineLimits {
  int64_t activations = 0;  // number of micro-batches, counted once per chunk
  double bytes = 0;         // activations and static bytes together
};

// The rules by which a stage chooses its next operation.
struct GreedyRules {
  bool forward_first = false;  // prefer a forward pass to a backward pass if both could run
  bool deep_first = true;      // prefer a later chunk to an earlier one
  // A stage that could run a weight half waits for another input instead, if that input arrives within this
  // fraction of the half's time.
  double wait_fraction = 0;
  // Limit on how many more forward passes than backward passes stage 0 may have run; 0 means no limit.
  int64_t most_ahead = 0;
  // Each following stage has a limit that is lower by this number.
  int64_t ahead_per_stage = 0;
};

// Simulates the stages with these rules. Returns null if the limits leave no operation that can run.
std::shared_ptr<ComputeOrder> greedy_order(const PipelinePlan& shape, const PipelineCosts& costs,
                                           const PipelineLimits& limits, const GreedyRules& rules);

}  // namespace dsc
