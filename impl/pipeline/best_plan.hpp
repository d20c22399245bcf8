// Finds the best schedule for given costs and limits: among those with a name, orders that a greedy rule
// finds, what small changes make of the best one, and for small pipelines all orders that there are.
#pragma once

#include <memory>
#include <string>

#include "pipeline/greedy_order.hpp"

namespace dsc {

struct BestPlan {
  std::shared_ptr<const PipelinePlan> plan;
  PipelineReport report;
  std::string origin;      // the schedule's name, "greedy", "repaired" or "exact"
  std::string best_named;  // empty if none keeps to the limits
  double best_named_makespan = 0;
  double bound = 0;         // no order has a smaller makespan
  bool is_optimal = false;  // no other order is better: all were tried, or the makespan equals the bound
};

// Spec says stages, micro-batches, chunks (0: 1), forward_only and messages. Orders are tried in a loop, and
// with more than one chunk in a zigzag as well; parts and their costs are in the order in which data flows.
// Throws INVALID_ARG if no order keeps to the limits, and as simulate() does; OVERFLOW for more than can be
// tried.
BestPlan find_best_plan(ScheduleSpec spec, const PipelineCosts& costs, const PipelineLimits& limits);

// The best order of all, if there are few enough to look at. `known` is a makespan to be improved on; null if
// none is.
struct ExactSearch {
  std::shared_ptr<ComputeOrder> order;  // better than `known`; null if there is none, or it was not found
  bool is_complete = false;             // all were looked at
};
ExactSearch exact_order(const PipelinePlan& shape, const PipelineCosts& costs, const PipelineLimits& limits,
                        double known);

}  // namespace dsc
